package reconciliation_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/payment/refunds"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

func TestBooksThatAgreeShowNoDiscrepancy(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	s.buy("pm_card_visa")
	s.buy("pm_card_chargeDeclined")
	s.giveBack(s.buy("pm_card_visa"))

	failed := s.giveBack(s.buy("pm_card_visa")) // the first attempt fails later, and its id is forgotten
	s.must(s.sim.FinishRefund(*s.refundNow(failed).ProviderID, "failed"))
	s.exec(`UPDATE refunds SET due_at = clock_timestamp()`)
	s.runRefund(failed)
	s.tryAgain(failed)

	won, lost, inquiry := s.buy("pm_card_visa"), s.buy("pm_card_visa"), s.buy("pm_card_createDisputeInquiry")
	s.must(s.sim.CloseDispute(s.dispute(won), true))
	s.must(s.sim.CloseDispute(s.dispute(lost), false))
	s.dispute(inquiry)
	s.byHand(s.buy("pm_card_visa").intent)
	released, err := s.provider.CreateIntent(t.Context(), intent("a lost purchase"))
	s.must(err)
	_, err = s.provider.ConfirmIntent(t.Context(), released.ID, "c", "pm_card_visa", "")
	s.must(err)
	_, err = s.provider.CancelIntent(t.Context(), released.ID, "x") // a refund of what was never captured
	s.must(err)
	_, err = s.sim.Payout("jpy", 30)
	s.must(err)
	other, err := s.client.CreateIntent(t.Context(), intent("of a program without a mark"))
	s.must(err)
	_, err = s.client.ConfirmIntent(t.Context(), other.ID, "oc", "pm_card_visa", "")
	s.must(err)
	_, err = s.client.CaptureIntent(t.Context(), other.ID, "t", 500)
	s.must(err)
	s.hear()

	s.calm()
	s.expectSpan(s.compareSpan(twice{s.client}, time.Now().Add(-past-time.Hour), time.Now()), 0)
	done := s.reconcileWith(twice{s.client})
	s.expect()
	if done.Days < 2 || done.Listed == 0 || done.Foreign != 1 || done.Found != 0 || strings.Contains(s.log.String(), "differ") {
		t.Errorf("%+v\n%s", done, s.log)
	}
	if done = s.reconcile(); done != (reconciliation.Report{}) {
		t.Errorf("a second time: %+v", done)
	}
}

// twice is a provider that lists all twice, with text of others that Postgres refuses.
type twice struct{ payprovider.Provider }

func (p twice) ListBalanceTransactions(ctx context.Context, from, to time.Time, yield func(payprovider.BalanceTransaction) error) error {
	list := func() error {
		return p.Provider.ListBalanceTransactions(ctx, from, to, func(t payprovider.BalanceTransaction) error {
			t.Source.Metadata = maps.Collect(maps.All(t.Source.Metadata))
			t.Source.Metadata["note"] = "\x00"
			return yield(t)
		})
	}
	return errors.Join(list(), list())
}

func intent(purchase string) payprovider.NewIntent {
	return payprovider.NewIntent{Key: uuid.NewString(), Amount: 500, Currency: "JPY", PaymentMethod: "pm_card_visa", Metadata: map[string]string{"purchase_id": purchase}}
}

// Each is planted in our books, since nobody can change the provider's.
func TestEachDifferenceIsFoundAndDissolves(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	lost, more, less, currency, gone, disputed, hand := s.buy("pm_card_visa"), s.buy("pm_card_visa"), s.buy("pm_card_visa"), s.buy("pm_card_visa"),
		s.buy("pm_card_visa"), s.buy("pm_card_visa"), s.buy("pm_card_visa")
	back, open, failed, stuck, twice := s.buy("pm_card_visa"), s.buy("pm_card_visa"), s.buy("pm_card_visa"), s.buy("pm_card_visa"), s.buy("pm_card_visa")
	backRefund, openRefund, failedRefund, stuckRefund, twiceRefund := s.giveBack(back), s.giveBack(open), s.giveBack(failed), s.giveBack(stuck), s.giveBack(twice)
	s.dispute(disputed)
	s.hear()
	handRefund := s.byHand(hand.intent) // after the events: nobody has heard
	s.must(s.sim.FinishRefund(*s.refundNow(failedRefund).ProviderID, "failed"))
	s.must(s.sim.FinishRefund(*s.refundNow(stuckRefund).ProviderID, "failed"))
	theirs := map[uuid.UUID]string{}
	for _, id := range []uuid.UUID{backRefund, openRefund, failedRefund, stuckRefund, twiceRefund} {
		theirs[id] = *s.refundNow(id).ProviderID
	}
	disputeID := *disputeOf(s, disputed)

	s.exec(`UPDATE payments SET intent_id = 'pi_elsewhere' WHERE purchase_id = $1`, lost.purchase)
	s.exec(`UPDATE payments SET amount = amount + 1, received = received + 1 WHERE purchase_id = $1`, more.purchase)
	s.exec(`UPDATE payments SET amount = amount - 1, received = received - 1 WHERE purchase_id = $1`, less.purchase)
	s.exec(`UPDATE payments SET currency = 'USD' WHERE purchase_id = $1`, currency.purchase)
	s.exec(`UPDATE payments SET phase = 'cancelled', received = 0, ending = 'unpaid' WHERE purchase_id = $1`, gone.purchase)
	s.exec(`UPDATE disputes SET id = 'du_elsewhere' WHERE purchase_id = $1`, disputed.purchase)
	s.exec(`UPDATE refunds SET provider_id = 're_elsewhere' WHERE id = $1`, backRefund)
	s.exec(`UPDATE refunds SET state = 'pending', finished_at = NULL WHERE id = ANY($1)`, []uuid.UUID{openRefund, stuckRefund})
	s.exec(`UPDATE refunds SET amount = amount + 5 WHERE id = $1`, twiceRefund)
	want := []string{
		"unknown-here " + lost.intent, "unknown-there pi_elsewhere", "differs " + more.intent, "differs " + less.intent, "differs " + currency.intent,
		"differs " + gone.intent, "unknown-here " + disputeID, "unknown-here " + handRefund,
		"unknown-here " + theirs[backRefund], "unknown-there re_elsewhere", "differs " + theirs[openRefund], "differs " + theirs[failedRefund], "differs " + theirs[stuckRefund], "differs " + theirs[twiceRefund],
	}
	s.calm()
	apart := []string{"differs " + theirs[openRefund], "differs " + theirs[stuckRefund]} // pending here
	s.expectSpan(s.compare(), len(apart), slices.DeleteFunc(slices.Clone(want), func(w string) bool { return slices.Contains(apart, w) })...)
	if n := servers.Value[int](t, s.db, `SELECT (SELECT count(*) FROM balance_transactions) + (SELECT count(*) FROM payment_discrepancies) + (SELECT count(*) FROM reconciled_days)`); n != 0 {
		t.Errorf("a comparison of a span has stored %d rows", n)
	}
	done := s.reconcile()
	s.expect(want...)
	if done.Found != len(want) || strings.Count(s.log.String(), "the provider's books and ours differ") != len(want) || strings.Contains(s.log.String(), "there=0") {
		t.Errorf("%+v\n%s", done, s.log)
	}
	s.again()
	if done = s.reconcile(); done.Found != 0 {
		t.Errorf("found a second time: %+v", done)
	}
	counts, err := reconciliation.CountOpen(t.Context(), s.db)
	if err != nil || counts[reconciliation.UnknownHere] != 4 || counts[reconciliation.UnknownThere] != 2 || counts[reconciliation.Differs] != 8 || counts[reconciliation.UnknownCategory] != 0 {
		t.Errorf("%v, %v", counts, err)
	}

	s.exec(`UPDATE payments SET intent_id = $2 WHERE purchase_id = $1`, lost.purchase, lost.intent)
	s.exec(`UPDATE payments SET amount = amount - 1, received = received - 1 WHERE purchase_id = $1`, more.purchase)
	s.exec(`UPDATE payments SET amount = amount + 1, received = received + 1 WHERE purchase_id = $1`, less.purchase)
	s.exec(`UPDATE payments SET currency = 'JPY' WHERE purchase_id = $1`, currency.purchase)
	s.exec(`UPDATE payments SET phase = 'settled', received = amount, ending = NULL WHERE purchase_id = $1`, gone.purchase)
	s.exec(`UPDATE refunds SET provider_id = $2 WHERE id = $1`, backRefund, theirs[backRefund])
	s.exec(`UPDATE refunds SET state = 'succeeded', finished_at = clock_timestamp() WHERE id = $1`, openRefund)
	s.exec(`UPDATE refunds SET amount = amount - 5 WHERE id = $1`, twiceRefund)
	for _, id := range []uuid.UUID{failedRefund, stuckRefund} {
		s.exec(`UPDATE refunds SET due_at = clock_timestamp() WHERE id = $1`, id)
		s.runRefund(id) // hears that it has failed
	}
	s.exec(`UPDATE disputes SET id = $2 WHERE purchase_id = $1`, disputed.purchase, disputeID)
	s.hear() // and of the refund by hand
	if done = s.reconcile(); done.Closed != len(want) {
		t.Errorf("closed: %+v", done)
	}
	s.expect()
	s.exec(`UPDATE payments SET currency = 'USD' WHERE purchase_id = $1`, currency.purchase)
	s.again()
	s.reconcile()
	s.expect("differs " + currency.intent) // it comes back
}

// disputeOf returns the id of a dispute that is on record.
func disputeOf(s *shop, b bought) *string {
	s.t.Helper()
	p := s.payment(b)
	if p.Dispute == nil {
		s.t.Fatal("the dispute is not on record")
	}
	return &p.Dispute.ID
}

func TestAnotherCurrencyOfTheBalanceIsNoDiscrepancy(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{SettlesIn: "usd", ExchangeRate: 0.64935}))
	b := s.buy("pm_card_visa")
	s.giveBack(s.buy("pm_card_visa"))
	s.reconcile()
	s.expect()
	var rate, currency, sourceCurrency string
	var amount, fee, net, source int64
	s.must(s.db.QueryRow(t.Context(), `
		SELECT exchange_rate::text, currency, source_currency, amount, fee, net, source_amount FROM balance_transactions WHERE source_id = $1`, b.charge).
		Scan(&rate, &currency, &sourceCurrency, &amount, &fee, &net, &source))
	if paid := int64(s.payment(b).Amount); rate != "0.64935" || currency != "USD" || sourceCurrency != "JPY" || source != paid || amount == paid || net != amount-fee || fee == 0 {
		t.Errorf("%s %s %s: %d, %d, %d of %d", rate, currency, sourceCurrency, amount, fee, net, source)
	}
}

// broken is a provider whose list ends with an error, or has what no release knows.
type broken struct {
	payprovider.Provider
	mu     sync.Mutex
	calls  int
	fail   func(call int) error
	change func(t *payprovider.BalanceTransaction)
	skip   func(t payprovider.BalanceTransaction) bool
}

func (b *broken) ListBalanceTransactions(ctx context.Context, from, to time.Time, yield func(payprovider.BalanceTransaction) error) error {
	b.mu.Lock()
	b.calls++
	call := b.calls
	b.mu.Unlock()
	err := b.Provider.ListBalanceTransactions(ctx, from, to, func(t payprovider.BalanceTransaction) error {
		if b.change != nil {
			b.change(&t)
		}
		if b.skip != nil && b.skip(t) {
			return nil
		}
		return yield(t)
	})
	if b.fail != nil {
		if failed := b.fail(call); failed != nil {
			return failed
		}
	}
	return err
}

func TestADayThatFailsHalfWayIsDoneAgain(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	b := s.buy("pm_card_visa")
	s.exec(`UPDATE payments SET currency = 'USD' WHERE purchase_id = $1`, b.purchase)
	if done := s.reconcileWith(nil); done != (reconciliation.Report{}) {
		t.Errorf("without a provider: %+v", done)
	}
	away := errors.New("the provider is away")
	list := &broken{Provider: s.client, fail: func(call int) error {
		if call == 1 {
			return away
		}
		return nil
	}}
	r := reconciliation.New(s.db, list, 300*24*time.Hour, servers.Logger(t))
	done, more, err := r.Run(t.Context())
	if !errors.Is(err, away) || more || done.Days != 0 {
		t.Fatalf("%+v, %t, %v", done, more, err)
	}
	s.expect()
	s.reconcileWith(list)
	s.expect("differs " + b.intent)

	dead, ok, err := reconciliation.ClaimDay(t.Context(), s.db, 0, 300*24*time.Hour, time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, ok, err := reconciliation.ClaimDay(t.Context(), s.db, 0, 300*24*time.Hour, time.Hour); err != nil || ok {
		t.Errorf("two have the day: %v", err)
	}
	s.exec(`UPDATE reconciled_days SET lease_until = clock_timestamp() WHERE done_at IS NULL`) // its scheduler has died
	again, ok, err := reconciliation.ClaimDay(t.Context(), s.db, 0, 300*24*time.Hour, time.Hour)
	if err != nil || !ok || !again.Day.Equal(dead.Day) || again.Version == dead.Version {
		t.Errorf("%+v after %+v, %t, %v", again, dead, ok, err)
	}
	if _, _, err := reconciliation.Store(t.Context(), s.db, &dead, reconciliation.End(dead), time.Hour, nil); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("one that has lost the day writes: %v", err)
	}
}

func TestACategoryThatNobodyKnowsIsListedOnceAndExplained(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	s.buy("pm_card_visa")
	for range 2 {
		_, err := s.sim.Payout("jpy", 30)
		s.must(err)
	}
	list := &broken{Provider: s.client, change: func(t *payprovider.BalanceTransaction) {
		if t.Category == "fee" {
			t.Category, t.Known = "moon_tax", false
		}
	}}
	s.reconcileWith(list)
	s.expect("unknown-category moon_tax")
	all, err := reconciliation.List(t.Context(), s.db, "", uuid.Nil, 10)
	s.must(err)
	service := reconciliation.NewService(s.db, func(d reconciliation.Discrepancy) any { return map[string]any{"state": d.State()} })
	r := fixture.Command(job.KindDiscrepancyExplain)
	for range 2 { // the second is the same request again
		if done, err := service.Explain(t.Context(), r, all[0].ID, all[0].Version, "operator:ops", "a new fee"); err != nil || string(done.Job.Result) == "" {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	if err := fixture.Problem(service.Explain(t.Context(), fixture.Command(job.KindDiscrepancyExplain), all[0].ID, 0, "operator:ops", "again")); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("explained twice: %v", err)
	}
	if err := fixture.Problem(service.Explain(t.Context(), fixture.Command(job.KindDiscrepancyExplain), uuid.New(), 0, "operator:ops", "again")); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an unknown one: %v", err)
	}
	s.again()
	if done := s.reconcileWith(list); done.Found != 0 {
		t.Errorf("it rings again: %+v", done)
	}
	s.expect()
}

func TestAnEventTellsOfAPaymentOfOursThatIsNotInOurBooks(t *testing.T) {
	t.Parallel()
	a := openAccount(t, stripesim.Settings{})
	s, other := openShop(t, a), openShop(t, a)
	lost, kept := s.buy("pm_card_visa"), s.buy("pm_card_visa")
	released, err := s.provider.CreateIntent(t.Context(), intent(uuid.NewString()))
	s.must(err)
	_, err = s.provider.ConfirmIntent(t.Context(), released.ID, "c", "pm_card_visa", "")
	s.must(err)
	s.exec(`UPDATE payments SET intent_id = 'pi_before', purchase_id = gen_random_uuid() WHERE purchase_id = $1`, lost.purchase) // as after a restore
	bought := s.log.String()
	s.hear()
	s.expect("unknown-here "+lost.intent, "unknown-here "+released.ID)
	heard := strings.TrimPrefix(s.log.String(), bought)
	if n := strings.Count(heard, "a payment of ours at the provider is not in our books"); n != 2 || strings.Contains(heard, kept.intent) {
		t.Errorf("%d lines: %s", n, heard)
	}
	other.hear()
	other.expect()

	_, err = s.provider.CancelIntent(t.Context(), released.ID, "x")
	s.must(err)
	s.hear()
	s.expect("unknown-here " + lost.intent)
	s.exec(`UPDATE payment_events SET handled_at = NULL, outcome = NULL WHERE intent_id = $1 AND status = 'requires_capture'`, released.ID) // it comes late
	s.hear()
	s.expect("unknown-here " + lost.intent)

	s.reconcile() // the balance shows the same
	s.expect("unknown-here "+lost.intent, "unknown-there pi_before")
	s.exec(`UPDATE payments SET intent_id = $1, purchase_id = $2 WHERE intent_id = 'pi_before'`, lost.intent, lost.purchase)
	s.reconcile()
	s.expect()
}

// None of it has metadata of ours, and some is of another day. The provider can list the release of an authorization as a
// refund, and the guide says to give back a payment of which a part was captured by hand.
func TestWhatWasGivenBackByHandDiffersOnlyWhereTheMoneyDoes(t *testing.T) {
	t.Parallel()
	const unpaid = `UPDATE payments SET phase = 'cancelled', received = 0, ending = 'unpaid' WHERE purchase_id = $1`
	resolved := func(s *shop, b bought, parts ...money.Amount) {
		for _, part := range parts {
			_, err := s.client.CreateRefund(s.t.Context(), payprovider.NewRefund{Key: uuid.NewString(), IntentID: b.intent, Amount: part})
			s.must(err)
		}
		s.exec(unpaid, b.purchase)
		s.exec(`UPDATE payments SET resolved_as = 'unpaid', resolved_by = 'operator:ops', resolve_reason = 'it is given back' WHERE purchase_id = $1`, b.purchase)
	}
	for name, c := range map[string]struct {
		skip    string // a category that is of another day
		only    string // days or span; empty: both are compared
		happens func(s *shop, b bought, paid money.Amount) (want []string)
	}{
		"a release of what was never captured": {"charge", "", func(s *shop, b bought, _ money.Amount) []string {
			s.byHand(b.intent)
			s.exec(unpaid, b.purchase)
			return nil
		}},
		"an operator has called it unpaid": {"", "", func(s *shop, b bought, paid money.Amount) []string { resolved(s, b, paid-1, 1); return nil }},
		"a part, and an operator has called it unpaid": {"", "", func(s *shop, b bought, paid money.Amount) []string {
			resolved(s, b, paid-1)
			return []string{"differs " + b.intent}
		}},
		"on the next day, before an operator called it unpaid": {"refund", "span", func(s *shop, b bought, paid money.Amount) []string { resolved(s, b, paid); return nil }},
		"later, and disputed, of a lost payment": {"charge", "days", func(s *shop, b bought, _ money.Amount) []string {
			s.exec(`UPDATE payments SET intent_id = NULL, phase = 'cancelled', received = 0, ending = 'unpaid' WHERE purchase_id = $1`, b.purchase)
			s.reconcile()
			s.expect("unknown-here " + b.intent)
			want := []string{"unknown-here " + b.intent, "unknown-here " + s.byHand(b.intent), "unknown-here " + s.dispute(b)}
			s.again()
			return want
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, openAccount(t, stripesim.Settings{}))
			b := s.buy("pm_card_visa")
			want := c.happens(s, b, s.payment(b).Amount)
			list := &broken{Provider: s.client, skip: func(t payprovider.BalanceTransaction) bool { return t.Category == c.skip }}
			if c.only != "days" {
				s.expectSpan(s.compareSpan(list, time.Now().Add(-past-time.Hour), time.Now()), 0, want...)
			}
			if c.only != "span" {
				s.reconcileWith(list)
				s.expect(want...)
			}
		})
	}
}

// crowded is a provider with so many transactions that a run is cut off long before the end of
// the day: it answers so many pages.
type crowded struct {
	payprovider.Provider
	every time.Duration // between two transactions
	pages int
	left  int // pages of this run
}

func (c *crowded) ListBalanceTransactions(_ context.Context, from, to time.Time, yield func(payprovider.BalanceTransaction) error) error {
	for n, at := 0, to.Truncate(c.every); !at.Before(from); n, at = n+1, at.Add(-c.every) {
		if n%100 == 0 {
			if c.left--; c.left < 0 {
				return context.DeadlineExceeded
			}
		}
		if !at.Before(to) {
			continue
		}
		if err := yield(payprovider.BalanceTransaction{ID: "txn_" + at.Format(time.RFC3339), Type: "stripe_fee", Category: "fee", Known: true,
			Amount: -1, Net: -1, Currency: "JPY", CreatedAt: at, AvailableOn: at}); err != nil {
			return err
		}
	}
	return nil
}

func TestADayWithManyTransactionsIsDoneByManyRuns(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	const aDay = 20_000 // a run has time for a quarter of it
	list := &crowded{every: 24 * time.Hour / aDay, pages: 60}
	r := reconciliation.New(s.db, list, 300*24*time.Hour, servers.Logger(t))
	listed := 0
	for runs := 1; ; runs++ {
		list.left = list.pages
		done, more, err := r.Run(t.Context())
		listed += done.Listed
		if more {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || done.Listed == 0 || runs == 40 {
			t.Fatalf("run %d is no further: %+v, %v", runs, done, err)
		}
	}
	if listed < aDay-1 || listed > aDay+1 {
		t.Errorf("%d listed", listed)
	}
}

// buyTwoAlike buys until two purchases cost the same: there are few prices.
func (s *shop) buyTwoAlike() (one, two bought) {
	s.t.Helper()
	seen := map[money.Amount]bought{}
	for {
		b := s.buy("pm_card_visa")
		amount := s.payment(b).Amount
		if other, ok := seen[amount]; ok {
			return other, b
		}
		seen[amount] = b
	}
}

func TestMoneyThatIsOfAnotherPurchaseHereDiffers(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	one, two := s.buyTwoAlike()
	three, four := s.buyTwoAlike()
	refundThree, refundFour := s.giveBack(three), s.giveBack(four)
	s.byHand(s.buy("pm_card_visa").intent)
	s.hear()
	theirsThree, theirsFour := *s.refundNow(refundThree).ProviderID, *s.refundNow(refundFour).ProviderID
	for _, swap := range []struct{ sql, here, there string }{
		{`UPDATE payments SET intent_id = $2 WHERE intent_id = $1`, one.intent, two.intent},
		{`UPDATE refunds SET provider_id = $2 WHERE provider_id = $1`, theirsThree, theirsFour},
	} {
		s.exec(swap.sql, swap.there, "between")
		s.exec(swap.sql, swap.here, swap.there)
		s.exec(swap.sql, "between", swap.here)
	}
	s.expectSpan(s.compare(), 0, "differs "+one.intent, "differs "+two.intent, "differs "+theirsThree, "differs "+theirsFour)
	s.reconcile()
	s.expect("differs "+one.intent, "differs "+two.intent, "differs "+theirsThree, "differs "+theirsFour)
}

// Somebody says that a refund was paid by hand, and the provider has made it, too: the books differ until the provider's list is noted.
func TestARefundThatWasResolvedAndMadeDiffersUntilItIsLookedFor(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	id := s.giveBack(s.buy("pm_card_visa"))
	s.hear()
	theirs := *s.refundNow(id).ProviderID
	s.exec(`UPDATE refunds SET state = 'pending', finished_at = NULL, stuck = true WHERE id = $1`, id) // the key was refused since
	service := refunds.NewService(s.db, func(payment.Refund) any { return map[string]any{} })
	servers.NoError(t, fixture.Problem(service.Resolve(t.Context(), fixture.Command(job.KindRefundResolve), access.Everything(), refunds.ByHand{ID: id, Amount: s.refundNow(id).Due}, "operator:ops", "by bank transfer")))
	s.reconcile()
	s.expect("differs " + theirs)
	s.runRefund(id)
	s.reconcile()
	s.expect()
}

func TestWhatWeMakeHasTheIdOfOurInstallation(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	ours, err := reconciliation.Installation(t.Context(), s.db)
	s.must(err)
	b := s.buy("pm_card_visa")
	in, err := s.client.Intent(t.Context(), b.intent)
	if err != nil || in.Metadata["installation"] != ours.String() || in.Metadata["purchase_id"] != b.purchase.String() {
		t.Errorf("%v, %v", in.Metadata, err)
	}
	r, err := s.client.Refund(t.Context(), *s.refundNow(s.giveBack(b)).ProviderID)
	if err != nil || r.Metadata["installation"] != ours.String() || r.Metadata["purchase_id"] != b.purchase.String() {
		t.Errorf("%v, %v", r.Metadata, err)
	}
}

func TestNothingIsMadeWithoutTheId(t *testing.T) {
	t.Parallel()
	a := openAccount(t, stripesim.Settings{})
	closed, err := servers.DB(t).Begin(t.Context())
	if err != nil || closed.Rollback(t.Context()) != nil {
		t.Fatal(err)
	}
	provider := reconciliation.Mark(a.client, closed) // the id cannot be read
	given := intent(uuid.NewString())
	for name, call := range map[string]func() error{
		"intent": func() error { _, err := provider.CreateIntent(t.Context(), given); return err },
		"refund": func() error {
			_, err := provider.CreateRefund(t.Context(), payprovider.NewRefund{Key: "r", IntentID: "pi_1", Amount: 1})
			return err
		},
	} {
		if e, ok := errors.AsType[*payprovider.Error](call()); !ok || e.Kind != payprovider.KindUnavailable {
			t.Errorf("%s: %v", name, e)
		}
	}
	if n := a.sim.Totals().Requests; n != 0 || len(given.Metadata) != 1 {
		t.Errorf("%d requests, %v", n, given.Metadata)
	}
}
