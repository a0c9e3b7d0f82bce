package lifecycle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// order accepts a job that cancels a campaign.
func order(t *testing.T, db *pgxpool.Pool, campaignID uuid.UUID, o lifecycle.CancelOrder) job.Ref {
	t.Helper()
	payload, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	id := uuidv7.New()
	return fixture.Accept(t, db, job.Request{ID: id, Client: "test", Key: id.String(), Kind: job.KindCampaignCancellation, CampaignID: campaignID,
		Payload: payload, Keep: time.Hour})[0]
}

func canceller(t *testing.T, db *pgxpool.Pool) *lifecycle.Canceller {
	t.Helper()
	return lifecycle.NewCanceller(db, lifecycle.Observer{}, servers.Logger(t))
}

var byOps = lifecycle.CancelOrder{By: "operator:ops", Reason: "the organiser is ill"}

// refused checks that a job failed with a code.
func refused(t *testing.T, db *pgxpool.Pool, ref job.Ref, code fault.Code) {
	t.Helper()
	outcome, err := canceller(t, db).Run(t.Context(), ref)
	if err != nil || outcome.Problem == nil || outcome.Problem.Code != code {
		t.Errorf("got %+v, %v; wanted %s", outcome, err, code)
	}
	if j := fixture.Job(t, db, ref.ID); j.State != job.Failed {
		t.Errorf("the job is %s", j.State)
	}
}

func resultOf(t *testing.T, outcome job.Outcome) (r lifecycle.CancelResult) {
	t.Helper()
	if outcome.Problem != nil {
		t.Fatalf("the job failed: %+v", outcome.Problem)
	}
	if err := json.Unmarshal(outcome.Result, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func campaignOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) campaign.Campaign {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

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
			fixture.Conclude(t, db, ref)
			return bought
		}
		fixture.Finalize(t, db, fixture.PurchaseRequestOf(t, id, o))
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
	if _, err := c.Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrWaiting) || told < 2 || due != 1 { // for the card
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
		+ entry 4 refund 200 refunds → wallet mina v4 balance 200 reference=refund:purchase 1 description=cancelled purchase purchase 1 purchase 1 actor=operator:ops`)
	fixture.Sound(t, db)
	succeedRefunds(t, db, id)
	outcome, err := c.Run(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if r := resultOf(t, outcome); r != (lifecycle.CancelResult{CampaignID: id, State: campaign.Cancelled, Refunded: lifecycle.Refunded{Wallet: 1, Card: 1, External: 1}}) {
		t.Errorf("the result is %+v", r)
	}
	if _, err := c.Run(t.Context(), ref); !errors.Is(err, job.ErrFinal) { // a late delivery
		t.Errorf("again: %v", err)
	}
	refused(t, db, order(t, db, id, byOps), fault.StateConflict)
	fixture.Sound(t, db)
}

func TestAPendingCampaignIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := uuidv7.New()
	if err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error { return campaign.Create(t.Context(), tx, id, fixture.Draft(3)) }); err != nil {
		t.Fatal(err)
	}
	outcome, err := canceller(t, db).Run(t.Context(), order(t, db, id, lifecycle.CancelOrder{By: "operator:ops"}))
	if err != nil || resultOf(t, outcome) != (lifecycle.CancelResult{CampaignID: id, State: campaign.Cancelled}) {
		t.Errorf("%+v, %v", outcome, err)
	}
	fixture.Sound(t, db)
}

func TestACampaignThatIsDrawnOrUnknownIsNotCancelled(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	drawing := fixture.Campaign(t, db, fixture.Draft(3))
	fixture.SellOut(t, db, drawing)
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
	for state, waiting := range map[string]int{"failed": 1, "canceled": 1, "requires_action": 1, "pending": -1, "open": -1, "pending, stuck": 1, "open, stuck": 1} {
		db := servers.DB(t)
		id := fixture.Campaign(t, db, fixture.Draft(3))
		fixture.BuyByCard(t, db, id, "mina", 0, 1)
		ref := order(t, db, id, byOps)
		if _, err := canceller(t, db).Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrWaiting) {
			t.Fatalf("got %v", err)
		}
		servers.Exec(t, db, `UPDATE refunds SET state = $1, stuck = $2`, strings.TrimSuffix(state, ", stuck"), strings.HasSuffix(state, ", stuck"))
		outcome, err := canceller(t, db).Run(t.Context(), ref)
		if waiting < 0 {
			if !errors.Is(err, lifecycle.ErrWaiting) {
				t.Errorf("%s: %+v, %v", state, outcome, err)
			}
			continue
		}
		if err != nil || resultOf(t, outcome).Waiting != waiting || resultOf(t, outcome).Refunded.Card != 0 {
			t.Errorf("%s: %+v, %v", state, outcome, err)
		}
	}
}

// A wallet that is locked, broken or full waits by itself, and the job for it.
func TestAWalletThatCannotTakeItsMoneyDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina, otto := fixture.Wallet(t, db, "mina", 5000), fixture.Wallet(t, db, "otto", 5000)
	fixture.Finalize(t, db, fixture.WalletRequest(t, id, "mina", 2, 2), fixture.WalletRequest(t, id, "otto", 3, 2))
	ref := order(t, db, id, byOps)
	unlock := fixture.LockWallet(t, db, mina)
	var log bytes.Buffer
	run := func() error {
		_, err := lifecycle.NewCanceller(db, lifecycle.Observer{}, slog.New(slog.NewTextHandler(&log, nil))).Run(t.Context(), ref)
		return err
	}
	if err := run(); !errors.Is(err, lifecycle.ErrWaiting) {
		t.Fatalf("got %v", err)
	}
	if a, b := fixture.Balance(t, db, mina), fixture.Balance(t, db, otto); a != 4600 || b != 5000 {
		t.Errorf("the wallets have %d and %d", a, b)
	}
	if got := fixture.Job(t, db, ref.ID); *got.Progress.Refunds != (job.Refunds{Total: 2, Done: 1}) {
		t.Errorf("the progress is %+v", got.Progress.Refunds)
	}
	unlock()
	if got := fixture.Job(t, db, ref.ID); got.Progress.Waiting != nil {
		t.Errorf("a locked wallet is free soon: %+v", got.Progress.Waiting)
	}
	servers.Exec(t, db, `UPDATE wallets SET balance = balance + 1 WHERE id = $1`, mina)
	for _, c := range []struct{ cancelled, pause time.Duration }{{0, time.Second}, {4 * time.Minute, 2 * time.Minute}, {time.Hour, 5 * time.Minute}} {
		servers.Exec(t, db, `UPDATE campaigns SET cancelled_at = clock_timestamp() - $2 * interval '1 second' WHERE id = $1`, id, c.cancelled.Seconds())
		wait, ok := errors.AsType[*lifecycle.CancelWaiting](run())
		if !ok || !errors.Is(wait, lifecycle.ErrWaiting) || wait.After < c.pause || wait.After > 5*time.Minute {
			t.Fatalf("broken since %s: %+v", c.cancelled, wait)
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
	if err := run(); !errors.Is(err, lifecycle.ErrWaiting) || fixture.Job(t, db, ref.ID).Progress.Waiting != nil {
		t.Errorf("repaired: %v", err)
	}
	unlock()
	if err := run(); err != nil {
		t.Fatal(err)
	}
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
	id := fixture.Campaign(t, db, fixture.Draft(6))
	of := make(map[payment.Phase]payment.Payment)
	jobs := make(map[payment.Phase]job.Ref)
	for _, phase := range []payment.Phase{payment.Reserved, payment.Creating, payment.Confirming, payment.Action, payment.Processing, payment.Capturing, payment.Captured, payment.Expiring} {
		bought, ref := fixture.Reserve(t, db, id, "user-"+string(phase), 1, time.Hour)
		if phase != payment.Reserved {
			fixture.Advance(t, db, bought, phase)
		}
		of[phase], jobs[phase] = fixture.Payment(t, db, bought), ref
	}
	late := latePayment(t, db, id)
	ref := order(t, db, id, byOps)
	var given []lease.Item
	c := lifecycle.NewCanceller(db, lifecycle.Observer{Due: func(p []lease.Item) { given = append(given, p...) }}, servers.Logger(t))
	waits := func() {
		t.Helper()
		if _, err := c.Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrWaiting) {
			t.Fatalf("got %v", err)
		}
		fixture.Sound(t, db)
	}
	waits()
	for phase, was := range of {
		p := fixture.Payment(t, db, was.PurchaseID)
		switch {
		case !phase.BeforeCapture():
			if p.Phase != phase || p.Version != was.Version {
				t.Errorf("%s became %s", phase, p.Phase)
			}
		case p.Phase != payment.Expiring || *p.Ending != payment.CampaignCancelled || p.Version != was.Version+1 || p.LeaseUntil != nil || p.DueAt == nil:
			t.Errorf("%s became %+v", phase, p)
		default:
			if err := payment.Write(t.Context(), db, &was, payment.Always, time.Minute, nil); !errors.Is(err, lease.ErrFenced) {
				t.Errorf("%s: the worker that had it wrote: %v", phase, err)
			}
		}
	}
	if len(given) != 5 {
		t.Errorf("told of %d payments", len(given))
	}
	for phase, was := range of {
		switch phase {
		case payment.Captured:
		case payment.Capturing:
			fixture.Advance(t, db, was.PurchaseID, payment.Captured)
		case payment.Expiring:
			fixture.EndAs(t, db, was.PurchaseID, payment.Expired)
		default:
			fixture.EndAs(t, db, was.PurchaseID, payment.CampaignCancelled)
		}
		waits()
		fixture.Conclude(t, db, jobs[phase])
	}
	waits() // for two refunds
	succeedRefunds(t, db, id)
	outcome, err := c.Run(t.Context(), ref)
	if err != nil || resultOf(t, outcome).Refunded != (lifecycle.Refunded{Card: 2}) {
		t.Errorf("when only a late one is open: %+v, %v", outcome, err)
	}
	if p := fixture.Payment(t, db, late); p.Phase != payment.Late {
		t.Errorf("the late one is %s", p.Phase)
	}
	fixture.Sound(t, db)
}

// latePayment makes a payment that the provider would not cancel.
func latePayment(t *testing.T, db *pgxpool.Pool, campaignID uuid.UUID) uuid.UUID {
	t.Helper()
	bought, ref := fixture.Reserve(t, db, campaignID, "late", 1, -time.Second)
	fixture.Advance(t, db, bought, payment.Processing)
	p := fixture.Payment(t, db, bought)
	over := payment.Expired
	p.Phase, p.Ending, p.Uncancellable = payment.Expiring, &over, true
	if err := fixture.Lead(t, db, &p, payment.Always); err != nil {
		t.Fatal(err)
	}
	fixture.Conclude(t, db, ref)
	return bought
}

// A job that was given up leaves a campaign half given back: the next one goes on.
func TestACampaignWhoseJobWasGivenUpIsFinishedByTheNextRequest(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina := fixture.Wallet(t, db, "mina", 5000)
	fixture.Finalize(t, db, fixture.WalletRequest(t, id, "mina", 2, 2))
	first := order(t, db, id, byOps)
	unlock := fixture.LockWallet(t, db, mina)
	if _, err := canceller(t, db).Run(t.Context(), first); !errors.Is(err, lifecycle.ErrWaiting) {
		t.Fatalf("got %v", err)
	}
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
	if _, err := canceller(t, db).Run(t.Context(), order(t, db, id, lifecycle.CancelOrder{By: "operator:two"})); err != nil {
		t.Fatal(err)
	}
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
	if _, err := c.Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrWaiting) {
		t.Fatalf("got %v", err)
	}
	if len(advanced) != 4 || advanced[0] != (job.Refunds{Total: 300}) || advanced[3] != (job.Refunds{Total: 300, Done: 200}) { // when it began, and after each chunk
		t.Errorf("the progress was %v", advanced)
	}
	for i := 1; i < len(advanced); i++ {
		if advanced[i].Total != 300 || advanced[i].Done < advanced[i-1].Done {
			t.Errorf("the progress was %v", advanced)
		}
	}
	sum.check(t, db, id)
	fixture.Sound(t, db)
	succeedRefunds(t, db, id)
	outcome, err := c.Run(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if r := resultOf(t, outcome); r.Refunded != (lifecycle.Refunded{Wallet: 100, Card: 100, External: 100}) || r.Waiting != 0 {
		t.Errorf("the result is %+v", r)
	}
	fixture.Sound(t, db)
}

var unsold = lifecycle.CancelOrder{By: job.System, Reason: "the sale has ended", IfUnsold: true}

// endedCampaign is a campaign of six positions with the policy cancel. Its sale ended a
// moment ago, or ends in an hour.
func endedCampaign(t *testing.T, db *pgxpool.Pool, policy string, ended bool) uuid.UUID {
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

// The state under the lock decides, not what was found before.
func TestOnlyASaleThatHasEndedUnsoldIsCancelled(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := endedCampaign(t, db, campaign.UnsoldCancel, false)
	fixture.Buy(t, db, id, "mina", 0, 2)
	endSale(t, db, id, true)
	outcome, err := canceller(t, db).Run(t.Context(), order(t, db, id, unsold))
	if err != nil || resultOf(t, outcome).Refunded.External != 1 || *campaignOf(t, db, id).CancelledBy != "system" {
		t.Errorf("%+v, %v", outcome, err)
	}
	for _, id := range []uuid.UUID{endedCampaign(t, db, campaign.UnsoldCancel, false), endedCampaign(t, db, campaign.UnsoldStay, true)} {
		refused(t, db, order(t, db, id, unsold), fault.StateConflict)
		if c := campaignOf(t, db, id); c.State != campaign.Active {
			t.Errorf("it is %s", c.State)
		}
	}
}

// The last positions are being paid when the sale ends: it may still be sold out.
func TestASaleThatMayStillBeSoldOutIsNotCancelledYet(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := endedCampaign(t, db, campaign.UnsoldCancel, false)
	fixture.Sell(t, db, id, 5)
	last, paid := fixture.Reserve(t, db, id, "carl", 1, time.Hour)
	endSale(t, db, id, true)
	ref := order(t, db, id, unsold)
	if _, err := canceller(t, db).Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrWaiting) {
		t.Errorf("got %v", err)
	}
	if found, err := campaign.EndedUnsold(t.Context(), db, 10); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
	if c := campaignOf(t, db, id); c.State != campaign.Active {
		t.Errorf("it is %s", c.State)
	}
	fixture.EndAs(t, db, last, payment.Expired)
	fixture.Conclude(t, db, paid)
	if found, err := campaign.EndedUnsold(t.Context(), db, 10); err != nil || len(found) != 1 || found[0].ID != id {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err := canceller(t, db).Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
}
