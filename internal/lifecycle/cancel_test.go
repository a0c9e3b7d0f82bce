package lifecycle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
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

func TestACancelledCampaignGivesEveryPurchaseBackByTheWayItWasPaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina := fixture.Wallet(t, db, "mina", 5000)
	fixture.Finalize(t, db, fixture.WalletRequest(t, id, "mina", 2, 2))
	external := fixture.Buy(t, db, id, "otto", 3, 3)
	card, _ := fixture.BuyByCard(t, db, id, "carl", 4, 2)
	back := fixture.Buy(t, db, id, "dora", 5, 1) // was cancelled by itself, before
	if _, err := fixture.Seller(db).Cancel(t.Context(), fixture.Accept(t, db, fixture.CancelRequest(t, id, back)), sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	hold(t, db, id, "emil")
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, id)
	ref := order(t, db, id, byOps)
	var progress []uuid.UUID
	var refunds []lease.Item
	c := lifecycle.NewCanceller(db, lifecycle.Observer{Advanced: func(id uuid.UUID) { progress = append(progress, id) }, Due: func(made []lease.Item) { refunds = append(refunds, made...) }}, servers.Logger(t))
	if _, err := c.Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrWaiting) { // for the card
		t.Fatalf("got %v", err)
	}
	if got := fixture.Job(t, db, ref.ID); got.State != job.Queued || *got.Progress.Refunds != (job.Refunds{Total: 3, Done: 2}) {
		t.Errorf("while the card is open: %s, %+v", got.State, got.Progress)
	}
	now := campaignOf(t, db, id)
	if now.State != campaign.Cancelled || now.PausedAt != nil || now.Counts.Sold != 0 || now.Counts.Reserved != 0 {
		t.Errorf("the campaign is %+v", now)
	}
	if *now.CancelledBy != byOps.By || *now.CancelReason != byOps.Reason {
		t.Errorf("cancelled by %s: %s", *now.CancelledBy, *now.CancelReason)
	}
	if got := fixture.Balance(t, db, mina); got != 5000 {
		t.Errorf("the wallet has %d", got)
	}
	if events, err := wallet.History(t.Context(), db, mina, wallet.Page{Limit: 1}); err != nil || events[0].Entry.Kind != wallet.KindRefund || events[0].Entry.Actor != byOps.By {
		t.Errorf("it says %+v, %v", events, err)
	}
	for bought, want := range map[uuid.UUID]purchase.State{external: purchase.Cancelled, card: purchase.Refunding} {
		p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
		if err != nil || p.State != want || p.Cancellation == nil || p.Cancellation.By != byOps.By || *p.Cancellation.Reason != byOps.Reason {
			t.Errorf("purchase %+v, %v", p, err)
		}
	}
	all, err := payment.RefundsOfCampaign(t.Context(), db, access.Everything(), id, "", uuid.Nil, 10)
	if err != nil || len(all) != 4 || all[0].PurchaseID != back || all[0].Reason != payment.RefundPurchaseCancelled || all[0].State != payment.RefundListed {
		t.Fatalf("%d refunds, %v", len(all), err)
	}
	for _, r := range all[1:] {
		if want := map[payment.RefundMethod]payment.RefundState{payment.RefundToWallet: payment.RefundSucceeded, payment.RefundToCard: payment.RefundOpen, payment.RefundExternal: payment.RefundListed}[r.Method]; r.State != want ||
			r.Reason != payment.RefundCampaignCancelled || (r.DueAt != nil) != (r.Method == payment.RefundToCard) {
			t.Errorf("refund %+v", r)
		}
	}
	fixture.Sound(t, db)
	succeedRefunds(t, db, id)
	outcome, err := c.Run(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if r := resultOf(t, outcome); r != (lifecycle.CancelResult{CampaignID: id, State: campaign.Cancelled, Refunded: lifecycle.Refunded{Wallet: 1, Card: 1, External: 1}}) {
		t.Errorf("the result is %+v", r)
	}
	if len(progress) < 2 || progress[0] != ref.ID || len(refunds) != 1 || refunds[0].ID != refundOf(t, db, card) {
		t.Errorf("progress was told %d times, and of the refunds %v", len(progress), refunds)
	}
	if _, err := c.Run(t.Context(), ref); !errors.Is(err, job.ErrFinal) { // a late delivery
		t.Errorf("again: %v", err)
	}
	refused(t, db, order(t, db, id, byOps), fault.StateConflict)
	fixture.Sound(t, db)
}

// What was cancelled in part was given back then. Together the refunds are what was paid, and what is listed is all that the app owes.
func TestACancelledCampaignGivesBackTheRestOfAPurchase(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina := fixture.Wallet(t, db, "mina", 5000)
	fixture.Finalize(t, db, fixture.WalletRequest(t, id, "mina", 2, 2))
	external := fixture.Buy(t, db, id, "otto", 3, 3)
	card, _ := fixture.BuyByCard(t, db, id, "carl", 4, 2)
	var wallet uuid.UUID
	if err := db.QueryRow(t.Context(), `SELECT id FROM purchases WHERE campaign_id = $1 AND user_id = 'mina'`, id).Scan(&wallet); err != nil {
		t.Fatal(err)
	}
	var requests []job.Request
	for _, bought := range []uuid.UUID{wallet, external, card} {
		p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought, Positions: []shape.Position{p.Items[0].Position}, By: "app:test"}))
	}
	if _, err := fixture.Seller(db).Cancel(t.Context(), fixture.Accept(t, db, requests...), sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	if _, err := canceller(t, db).Run(t.Context(), order(t, db, id, byOps)); !errors.Is(err, lifecycle.ErrWaiting) { // for the card
		t.Fatalf("got %v", err)
	}
	all, err := payment.RefundsOfCampaign(t.Context(), db, access.Everything(), id, "", uuid.Nil, 10)
	back, state := make(map[payment.RefundMethod]money.Amount), map[payment.RefundMethod]payment.RefundState{payment.RefundToWallet: payment.RefundSucceeded, payment.RefundExternal: payment.RefundListed, payment.RefundToCard: payment.RefundOpen}
	for _, r := range all {
		if back[r.Method] += r.Amount; r.State != state[r.Method] {
			t.Errorf("by %s it is %s", r.Method, r.State)
		}
	}
	if want := (map[payment.RefundMethod]money.Amount{payment.RefundToWallet: 400, payment.RefundExternal: 900, payment.RefundToCard: 800}); err != nil || !maps.Equal(back, want) || len(all) != 6 {
		t.Errorf("%d refunds over %v, want %v: %v", len(all), back, want, err)
	}
	if got := fixture.Balance(t, db, mina); got != 5000 {
		t.Errorf("the wallet has %d", got)
	}
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

// Nothing is sold, held, published, paused or changed in a cancelled campaign, but its
// name; and its purchases are not cancelled one by one.
func TestACancelledCampaignTakesNothingAnyMore(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	mina := fixture.Wallet(t, db, "mina", 5000)
	bought := fixture.Finalize(t, db, fixture.WalletRequest(t, id, "mina", 2, 1))[0]
	var sold sale.Result
	if err := json.Unmarshal(bought.Result, &sold); err != nil {
		t.Fatal(err)
	}
	inTime := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "otto", 0, 1))[0]
	defer fixture.LockWallet(t, db, mina)() // so that the purchase stays completed
	if _, err := canceller(t, db).Run(t.Context(), order(t, db, id, byOps)); !errors.Is(err, lifecycle.ErrWaiting) {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		ref  job.Ref
		code fault.Code
	}{
		"purchase":     {inTime, fault.CampaignNotActive},
		"cancellation": {fixture.Accept(t, db, fixture.CancelRequest(t, id, sold.PurchaseID))[0], fault.StateConflict},
	} {
		finalize := fixture.Seller(db).Sell
		if what == "cancellation" {
			finalize = fixture.Seller(db).Cancel
		}
		if _, err := finalize(t.Context(), []job.Ref{c.ref}, sale.WaitForCampaign); err != nil {
			t.Fatal(err)
		}
		if j := fixture.Job(t, db, c.ref.ID); j.Problem == nil || j.Problem.Code != c.code {
			t.Errorf("%s: %s, %+v", what, j.State, j.Problem)
		}
	}
	if _, err := fixture.TryHold(t, holdsOf(t, db), fixture.HoldAnyRequest(id, "otto", 0, 1)); fault.CodeOf(err) != fault.CampaignNotActive {
		t.Errorf("hold: %v", err)
	}
	lifecycleRefuses(t, db, id)
	if now := campaignOf(t, db, id); now.State != campaign.Cancelled || now.Name != "Another name" {
		t.Errorf("got %+v", now)
	}
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

func refundOf(t *testing.T, db postgres.DB, purchaseID uuid.UUID) uuid.UUID {
	t.Helper()
	of, err := payment.RefundsOfPurchases(t.Context(), db, []uuid.UUID{purchaseID})
	if err != nil {
		t.Fatal(err)
	}
	return of[purchaseID][0].ID
}
