package lifecycle_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// succeedRefunds does at the provider what the runner of refunds would do.
func succeedRefunds(t *testing.T, db *pgxpool.Pool, campaignID uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE refunds SET state = 'succeeded', finished_at = clock_timestamp(), due_at = NULL WHERE campaign_id = $1 AND state = 'open'`, campaignID)
	servers.Exec(t, db, `UPDATE purchases SET state = 'refunded' WHERE campaign_id = $1 AND state = 'refunding'`, campaignID)
}

// What was cancelled before was given back then: together the refunds are what was paid, and what is listed is all
// that the app owes.
func TestACancelledCampaignGivesBackWhatIsLeftByTheWayItWasPaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	fixture.Wallet(t, db, "mina", 5000)
	buy := func(user string, method purchase.PaymentMethod, chosen ...shape.Position) (bought uuid.UUID) {
		o := sale.Order{UserID: user, Selection: fixture.Chosen(chosen...), Payment: sale.Payment{Method: method}}
		if method == purchase.Card {
			o.Payment.PaymentMethod = "pm_card_visa"
			bought, ref := fixture.ReserveFor(t, db, fixture.PurchaseRequestOf(t, id, o), time.Hour)
			fixture.Advance(t, db, bought, payment.Captured)
			fixture.SettlePayments(t, db, ref)
			return bought
		}
		fixture.Complete(t, db, fixture.PurchaseRequestOf(t, id, o))
		return servers.Value[uuid.UUID](t, db, `SELECT id FROM purchases WHERE user_id = $1`, user)
	}
	at := fixture.At
	bought := []uuid.UUID{buy("mina", purchase.Wallet, at(2, 1), at(2, 2)), buy("otto", purchase.External, at(3, 1), at(3, 2), at(3, 3)), buy("carl", purchase.Card, at(4, 1), at(4, 2))}
	before := []job.Request{fixture.CancelRequest(t, id, buy("dora", purchase.External, at(5, 1)))}
	for i, chosen := range []shape.Position{at(2, 1), at(3, 1), at(4, 1)} {
		before = append(before, fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought[i], Positions: []shape.Position{chosen}, By: "app:test"}))
	}
	if _, err := fixture.Seller(db).Cancel(t.Context(), fixture.Accept(t, db, before...), sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "emil", at(6, 1)))
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, id)
	ref := order(t, db, id, byOps)
	told, due := 0, 0
	c := lifecycle.NewCanceller(db, lifecycle.Observer{Advanced: func(of uuid.UUID) {
		if told++; of != ref.ID {
			t.Errorf("told of %s", of)
		}
	}, Due: func(made []lease.Item) { due += len(made) }}, servers.Logger(t))
	changed := fixture.Watch(t, db)
	if _, err := c.Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrSnoozed) || told < 2 || due != 1 { // for the card
		t.Fatalf("got %v, told %d times and of %d refunds", err, told, due)
	}
	changed(`
		~ campaign 1: active → cancelled; paused positions_reserved=1 positions_sold=4 board_version=7 → board_version=10 closed_board=9 cancelled_by=operator:ops cancel_reason=the organiser is ill
		~ position 2,2: sold mina purchase 1 v1 board_version=1 → free v2 board_version=10
		~ position 3,2: sold otto purchase 2 v1 board_version=2 → free v2 board_version=10
		~ position 3,3: sold otto purchase 2 v1 board_version=2 → free v2 board_version=10
		~ position 4,2: sold carl purchase 3 v2 board_version=4 → free v3 board_version=10
		~ position 6,1: held emil hold 1 v1 board_version=7 expires_at=10m → free v2 board_version=8
		~ job 10: → progress={refunds: {done: 2, total: 3, waiting: 0}}
		~ hold 1: active → released
		+ held emil 6,1
		~ purchase 1: completed → cancelled; → cancelled_by=operator:ops cancel_reason=the organiser is ill
		~ purchase 2: completed → cancelled; → cancelled_by=operator:ops cancel_reason=the organiser is ill
		~ purchase 3: completed → refunding; → cancelled_by=operator:ops cancel_reason=the organiser is ill
		+ step of purchase 3 refund-requested
		+ refund 5 wallet 200 succeeded purchase 1 number=2 user_id=mina reason=campaign-cancelled
		+ refund 6 external 600 listed purchase 2 number=2 user_id=otto reason=campaign-cancelled
		+ refund 7 card 400 open purchase 3 number=2 user_id=carl reason=campaign-cancelled due_at=past
		~ wallet mina: 4800 v3 → 5000 v4
		+ entry 4 refund 200 refunds → wallet mina v4 balance 200 reference=refund:job 1 description=cancelled purchase job 1 purchase 1 actor=operator:ops`)
	fixture.Sound(t, db)
	succeedRefunds(t, db, id)
	if r := ends(t, c, ref); r != (lifecycle.CancelResult{CampaignID: id, State: campaign.Cancelled, Refunded: lifecycle.RefundCounts{Wallet: 1, Card: 1, External: 1}}) {
		t.Errorf("the result is %+v", r)
	}
	if _, err := c.Run(t.Context(), ref); !errors.Is(err, job.ErrFinal) { // a late delivery
		t.Errorf("again: %v", err)
	}
	refused(t, db, order(t, db, id, byOps), fault.StateConflict)
	fixture.Sound(t, db)
}

func TestAPendingCampaignIsCancelledAtOnceAndOneThatIsDrawnOrUnknownIsNot(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := pending(t, db, fixture.Draft(3))
	if r := ends(t, canceller(t, db), order(t, db, id, lifecycle.CancelOrder{By: "operator:ops"})); r != (lifecycle.CancelResult{CampaignID: id, State: campaign.Cancelled}) {
		t.Errorf("%+v", r)
	}
	drawing := fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3))).CampaignID
	refused(t, db, order(t, db, drawing, byOps), fault.StateConflict)
	refused(t, db, order(t, db, uuidv7.New(), byOps), fault.NotFound)
	if now := campaignOf(t, db, drawing); now.State != campaign.Drawing || now.Counts.Sold != 6 {
		t.Errorf("got %+v", now)
	}
	fixture.Sound(t, db)
}

// What waits for a person does not keep the job open, and is in its result.
func TestTheJobSucceedsWhenCardRefundsSucceededOrWaitForAPerson(t *testing.T) {
	t.Parallel()
	for state, people := range map[string]bool{"failed": true, "canceled": true, "requires_action": true, "pending": false, "open": false, "pending, stuck": true, "open, stuck": true} {
		db := servers.DB(t)
		id := fixture.Campaign(t, db, fixture.Draft(3))
		fixture.BuyByCard(t, db, id, "mina", 0, 1)
		ref := order(t, db, id, byOps)
		waits(t, canceller(t, db), ref)
		servers.Exec(t, db, `UPDATE refunds SET state = $1, stuck = $2`, strings.TrimSuffix(state, ", stuck"), strings.HasSuffix(state, ", stuck"))
		if !people {
			waits(t, canceller(t, db), ref)
		} else if r := ends(t, canceller(t, db), ref); r.Waiting != 1 || r.Refunded.Card != 0 {
			t.Errorf("%s: %+v", state, r)
		}
	}
}

// A wallet that is locked, broken or full waits by itself, and the job for it.
func TestAWalletThatCannotTakeItsMoneyDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina, otto := fixture.Wallet(t, db, "mina", 5000), fixture.Wallet(t, db, "otto", 5000)
	fixture.Complete(t, db, fixture.WalletRequest(t, id, "mina", 2, 2), fixture.WalletRequest(t, id, "otto", 3, 2))
	ref := order(t, db, id, byOps)
	unlock := fixture.LockWallet(t, db, mina)
	var log bytes.Buffer
	c := lifecycle.NewCanceller(db, lifecycle.Observer{}, slog.New(slog.NewTextHandler(&log, nil)))
	waits(t, c, ref)
	if a, b := fixture.Balance(t, db, mina), fixture.Balance(t, db, otto); a != 4600 || b != 5000 {
		t.Errorf("the wallets have %d and %d", a, b)
	}
	if got := fixture.Job(t, db, ref.ID); *got.Progress.Refunds != (job.Refunds{Total: 2, Done: 1}) || got.Progress.Waiting != nil { // a locked wallet is free soon
		t.Errorf("the progress is %+v", got.Progress)
	}
	unlock()
	servers.Exec(t, db, `UPDATE wallets SET balance = balance + 1 WHERE id = $1`, mina)
	for _, since := range []struct{ cancelled, pause time.Duration }{{0, time.Second}, {4 * time.Minute, 2 * time.Minute}, {time.Hour, 5 * time.Minute}} {
		servers.Exec(t, db, `UPDATE campaigns SET cancelled_at = clock_timestamp() - $2 * interval '1 second' WHERE id = $1`, id, since.cancelled.Seconds())
		if wait := waits(t, c, ref); wait.After < since.pause || wait.After > 5*time.Minute {
			t.Fatalf("broken since %s: %+v", since.cancelled, wait)
		}
		said := fixture.Job(t, db, ref.ID).Progress
		if said.Waiting == nil || !strings.Contains(said.Waiting.Reason, "of 1 purchases") || !strings.Contains(said.Waiting.Reason, wallet.ErrBroken.Error()) ||
			*said.Refunds != (job.Refunds{Total: 2, Done: 1}) {
			t.Fatalf("the job says %+v", said)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || strings.Count(log.String(), "level=WARN") != 1 || strings.Count(log.String(), " from=active to=cancelled") != 1 {
		t.Errorf("%d lines are logged:\n%s", n, log.String())
	}
	servers.Exec(t, db, `UPDATE wallets SET balance = balance - 1 WHERE id = $1`, mina)
	unlock = fixture.LockWallet(t, db, mina)
	if waits(t, c, ref); fixture.Job(t, db, ref.ID).Progress.Waiting != nil {
		t.Error("it is repaired, and still waited for")
	}
	unlock()
	ends(t, c, ref)
	if got := fixture.Balance(t, db, mina); got != 5000 {
		t.Errorf("the wallet has %d", got)
	}
	fixture.Sound(t, db)
}

// Payments before their capture are given up, and those that are being captured are
// refunded; the job waits for the ends of all, but not of one that is late.
func TestPaymentsBeforeTheirCaptureAreGivenUpAndTheJobWaitsForTheirEnds(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(9))
	phases := []payment.Phase{payment.Reserved, payment.Creating, payment.Confirming, payment.Action, payment.Processing, payment.Capturing, payment.Captured, payment.Expiring}
	bought, jobs := make(map[payment.Phase]uuid.UUID), make(map[payment.Phase]job.Ref)
	for _, phase := range append(phases, payment.Late) {
		bought[phase], jobs[phase] = fixture.ReserveFor(t, db, fixture.CardRequest(t, id, string(phase), 9, 1), 10*time.Hour)
		switch phase {
		case payment.Reserved: // due within seconds, and not while others are made
			servers.Exec(t, db, `UPDATE payments SET due_at = due_at + interval '10 hours'`)
		case payment.Late: // the provider would not cancel it
			fixture.Advance(t, db, bought[phase], payment.Processing)
			fixture.Advance(t, db, bought[phase], payment.Expiring)
			servers.Exec(t, db, `UPDATE payments SET uncancellable = true, deadline = clock_timestamp() WHERE purchase_id = $1`, bought[phase])
			fixture.SettlePayments(t, db, jobs[phase])
		default:
			fixture.Advance(t, db, bought[phase], phase)
		}
	}
	ref, due := order(t, db, id, byOps), 0
	c := lifecycle.NewCanceller(db, lifecycle.Observer{Due: func(p []lease.Item) { due += len(p) }}, servers.Logger(t))
	changed := fixture.Watch(t, db)
	waits(t, c, ref)
	changed(`
		~ campaign 1: active → cancelled; board_version=10 → board_version=11 closed_board=11 cancelled_by=operator:ops cancel_reason=the organiser is ill
		~ job 4: awaiting_action → queued; progress={next_action: {expires_at: 10h, type: redirect, url: https://bank.test/job 4}} →
		~ job 10: → progress={refunds: {done: 0, total: 0, waiting: 0}}
		~ purchase 4: awaiting_action → pending
		~ payment of purchase 1: reserved → expiring; due_at=10h → v1 due_at=past; → ending=campaign-cancelled
		~ payment of purchase 2: creating → expiring; v1 → v2; → ending=campaign-cancelled
		~ payment of purchase 3: confirming → expiring; v1 → v2; → ending=campaign-cancelled
		~ payment of purchase 4: action → expiring; v1 → v2; next_action=https://bank.test/job 4 → ending=campaign-cancelled
		~ payment of purchase 5: processing → expiring; v1 → v2; → ending=campaign-cancelled`)
	if due != 5 {
		t.Errorf("told of %d payments", due)
	}
	fixture.Sound(t, db)
	for _, phase := range phases {
		switch phase {
		case payment.Captured:
		case payment.Capturing:
			fixture.Advance(t, db, bought[phase], payment.Captured)
		case payment.Expiring:
			fixture.EndAs(t, db, bought[phase], payment.Expired)
		default:
			fixture.EndAs(t, db, bought[phase], payment.CampaignCancelled)
		}
		waits(t, c, ref)
		fixture.SettlePayments(t, db, jobs[phase])
		fixture.Sound(t, db)
	}
	waits(t, c, ref) // for two refunds
	succeedRefunds(t, db, id)
	if r := ends(t, c, ref); r.Refunded != (lifecycle.RefundCounts{Card: 2}) {
		t.Errorf("when only a late one is open: %+v", r)
	}
	if p := fixture.Payment(t, db, bought[payment.Late]); p.Phase != payment.Late {
		t.Errorf("the late one is %s", p.Phase)
	}
	fixture.Sound(t, db)
}

// A job that was given up leaves a campaign half given back: the next one goes on.
func TestACampaignWhoseJobWasGivenUpIsFinishedByTheNextRequest(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina := fixture.Wallet(t, db, "mina", 5000)
	fixture.Complete(t, db, fixture.WalletRequest(t, id, "mina", 2, 2))
	first := order(t, db, id, byOps)
	unlock := fixture.LockWallet(t, db, mina)
	waits(t, canceller(t, db), first)
	unlock()
	back := fixture.Accept(t, db, fixture.CancelRequest(t, id, servers.Value[uuid.UUID](t, db, `SELECT id FROM purchases`)))
	if _, err := fixture.Seller(db).Cancel(t.Context(), back, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	if p := fixture.Job(t, db, back[0].ID).Problem; p == nil || p.Code != fault.StateConflict {
		t.Errorf("a cancellation of the purchase alone: %+v", p)
	}
	refused(t, db, order(t, db, id, lifecycle.CancelOrder{By: "operator:two"}), fault.StateConflict) // while the first is queued
	if _, err := job.GiveUp(t.Context(), db, []uuid.UUID{first.ID}, job.ProblemOf(errors.New("died"))); err != nil {
		t.Fatal(err)
	}
	ends(t, canceller(t, db), order(t, db, id, lifecycle.CancelOrder{By: "operator:two"}))
	if got := fixture.Balance(t, db, mina); got != 5000 {
		t.Errorf("the wallet has %d", got)
	}
	if by := campaignOf(t, db, id).CancelledBy; by == nil || *by != byOps.By {
		t.Errorf("cancelled by %v", by)
	}
	refused(t, db, order(t, db, id, byOps), fault.StateConflict) // nothing is left
	fixture.Sound(t, db)
}

// Of a full triangle, in chunks, mixed, again and again: each purchase once.
func TestAFullCampaignIsGivenBackInChunks(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(50)) // 1,275 positions
	sum := mixedPurchases(t, db, id, 300)
	ref := order(t, db, id, byOps)
	var advanced []job.Refunds
	c := lifecycle.NewCanceller(db, lifecycle.Observer{Advanced: func(id uuid.UUID) { advanced = append(advanced, *fixture.Job(t, db, id).Progress.Refunds) }}, servers.Logger(t))
	waits(t, c, ref)
	if len(advanced) != 4 || advanced[0] != (job.Refunds{Total: 300}) || advanced[3] != (job.Refunds{Total: 300, Done: 200}) || !slices.IsSortedFunc(advanced, func(a, b job.Refunds) int { return a.Done - b.Done }) { // when it began, and after each chunk
		t.Errorf("the progress was %v", advanced)
	}
	sum.check(t, db, id)
	fixture.Sound(t, db)
	succeedRefunds(t, db, id)
	if r := ends(t, c, ref); r.Refunded != (lifecycle.RefundCounts{Wallet: 100, Card: 100, External: 100}) || r.Waiting != 0 {
		t.Errorf("the result is %+v", r)
	}
	fixture.Sound(t, db)
}

var unsold = lifecycle.CancelOrder{By: job.System, Reason: "the sale has ended", IfUnsold: true}

// unsoldCampaign is a campaign of six positions with a policy. Its sale ended a moment ago, or ends in an hour.
func unsoldCampaign(t *testing.T, db *pgxpool.Pool, policy string, ended bool) uuid.UUID {
	t.Helper()
	draft := fixture.Draft(3)
	draft.Policies.Unsold = policy
	id := fixture.Campaign(t, db, draft)
	endSale(t, db, id, ended)
	return id
}

func endSale(t *testing.T, db *pgxpool.Pool, id uuid.UUID, ended bool) {
	t.Helper()
	servers.Exec(t, db, `UPDATE campaigns SET sale_ends_at = clock_timestamp() + CASE WHEN $2 THEN interval '-1 s' ELSE '1 hour' END WHERE id = $1`, id, ended)
}

// The state under the lock decides, not what was found before. While the last positions are being paid it may still be
// sold out.
func TestOnlyASaleThatHasEndedUnsoldIsCancelled(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, id := range []uuid.UUID{unsoldCampaign(t, db, campaign.UnsoldCancel, false), unsoldCampaign(t, db, campaign.UnsoldStay, true)} {
		refused(t, db, order(t, db, id, unsold), fault.StateConflict)
		if c := campaignOf(t, db, id); c.State != campaign.Active {
			t.Errorf("it is %s", c.State)
		}
	}
	id := unsoldCampaign(t, db, campaign.UnsoldCancel, false)
	fixture.Sell(t, db, id, 5)
	last, paid := fixture.Reserve(t, db, id, "carl", 1, time.Hour)
	endSale(t, db, id, true)
	ref := order(t, db, id, unsold)
	waits(t, canceller(t, db), ref)
	if found, err := campaign.EndedUnsold(t.Context(), db, 10); err != nil || len(found) != 0 || campaignOf(t, db, id).State != campaign.Active {
		t.Errorf("found %v, %v", found, err)
	}
	fixture.EndAs(t, db, last, payment.Expired)
	fixture.SettlePayments(t, db, paid)
	if found, err := campaign.EndedUnsold(t.Context(), db, 10); err != nil || len(found) != 1 || found[0].ID != id {
		t.Errorf("found %v, %v", found, err)
	}
	if r := ends(t, canceller(t, db), ref); r.Refunded.External != 5 || *campaignOf(t, db, id).CancelledBy != "system" {
		t.Errorf("%+v", r)
	}
}
