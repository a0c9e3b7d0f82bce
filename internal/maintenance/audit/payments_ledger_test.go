package audit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/maintenance/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/purchase"
	"triprize/internal/store/refund"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// books are what a provider has.
type books struct {
	payprovider.Provider
	intents []payprovider.Intent
	refunds []payprovider.Refund
	before  func(call string) // hears each call
}

func (b *books) hear(call string) {
	if b.before != nil {
		b.before(call)
	}
}

func (b *books) ListIntents(_ context.Context, from, to time.Time, yield func(payprovider.Intent) error) error {
	b.hear("list intents")
	for _, i := range b.intents {
		if !i.CreatedAt.Before(from) && i.CreatedAt.Before(to) {
			if err := yield(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *books) ListRefunds(_ context.Context, from, to time.Time, yield func(payprovider.Refund) error) error {
	b.hear("list refunds")
	for _, r := range b.refunds {
		if !r.CreatedAt.Before(from) && r.CreatedAt.Before(to) {
			if err := yield(r); err != nil {
				return err
			}
		}
	}
	return nil
}

var errMissing = &payprovider.Error{Kind: payprovider.KindRefused, Code: "resource_missing"}

func (b *books) Intent(_ context.Context, id string) (payprovider.Intent, error) {
	b.hear("intent")
	for _, i := range b.intents {
		if i.ID == id {
			return i, nil
		}
	}
	return payprovider.Intent{}, errMissing
}

func (b *books) Refund(_ context.Context, id string) (payprovider.Refund, error) {
	b.hear("refund")
	for _, r := range b.refunds {
		if r.ID == id {
			return r, nil
		}
	}
	return payprovider.Refund{}, errMissing
}

func (b *books) RefundsOf(_ context.Context, intentID string) (all []payprovider.Refund, err error) {
	b.hear("refunds of an intent")
	for _, r := range b.refunds {
		if r.IntentID == intentID {
			all = append(all, r)
		}
	}
	return all, nil
}

// ledgers are our books and the provider's, with two purchases by card: mina's is kept,
// otto's was refunded.
type ledgers struct {
	t          *testing.T
	db         *pgxpool.Pool
	there      *books
	mina, otto uuid.UUID
	from, to   time.Time
}

func newLedgers(t *testing.T) *ledgers {
	t.Helper()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(5))
	l := &ledgers{t: t, db: db, there: &books{}, from: time.Now().Add(-time.Hour), to: time.Now().Add(time.Hour)}
	l.mina, _ = fixture.BuyByCard(t, db, id, "mina", 2, 2)
	l.otto, _ = fixture.BuyByCard(t, db, id, "otto", 3, 1)
	for _, bought := range []uuid.UUID{l.mina, l.otto} {
		p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
		if err != nil {
			t.Fatal(err)
		}
		l.there.intents = append(l.there.intents, payprovider.Intent{ID: intentOf(bought), Status: payprovider.Succeeded, Amount: p.Amount, Received: p.Amount,
			Currency: "JPY", Metadata: map[string]string{"purchase_id": bought.String()}, CreatedAt: time.Now()})
	}
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		var b pgx.Batch
		refund.QueueInsert(&b, []refund.Refund{{ID: uuidv7.New(), PurchaseID: l.otto, CampaignID: id, UserID: "otto", Method: refund.Card, Amount: 300,
			Currency: "JPY", Reason: refund.PurchaseCancelled}})
		b.Queue(`UPDATE refunds SET state = 'succeeded', finished_at = clock_timestamp(), due_at = NULL, attempt = 1, attempt_at = clock_timestamp(), provider_id = 're_otto'`)
		return tx.SendBatch(t.Context(), &b).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	l.there.refunds = []payprovider.Refund{{ID: "re_otto", IntentID: intentOf(l.otto), Status: payprovider.RefundSucceeded, Amount: 300, Currency: "JPY",
		Metadata: map[string]string{"purchase_id": l.otto.String()}, CreatedAt: time.Now()}}
	return l
}

func (l *ledgers) compare() audit.PaymentsReport {
	l.t.Helper()
	r, err := audit.ComparePayments(l.t.Context(), l.db, l.there, l.from, l.to)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

func (l *ledgers) sql(statement string) {
	l.t.Helper()
	servers.Exec(l.t, l.db, statement)
}

// note notes a refund of mina's purchase that somebody has made at the provider.
func (l *ledgers) note(id string, amount money.Amount) {
	l.t.Helper()
	err := postgres.InTx(l.t.Context(), l.db, func(tx pgx.Tx) error {
		_, err := refund.Note(l.t.Context(), tx, []refund.Told{{ProviderID: id, PurchaseID: l.mina, Amount: amount, Currency: "JPY", State: refund.Succeeded}})
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func TestEqualBooksHaveNoDifference(t *testing.T) {
	t.Parallel()
	l := newLedgers(t)
	l.there.intents = append(l.there.intents, // not ours, and one of ours that was never confirmed
		payprovider.Intent{ID: "pi_strange", Received: 5000, Currency: "JPY", CreatedAt: time.Now()},
		payprovider.Intent{ID: "pi_first", Status: payprovider.RequiresConfirmation, Currency: "JPY", Metadata: map[string]string{"purchase_id": l.mina.String()}, CreatedAt: time.Now()})
	l.there.refunds = append(l.there.refunds, // not ours, and an earlier attempt
		payprovider.Refund{ID: "re_strange", IntentID: "pi_strange", Status: payprovider.RefundSucceeded, Amount: 5000, Currency: "JPY", CreatedAt: time.Now()},
		payprovider.Refund{ID: "re_released", IntentID: "pi_first", Status: payprovider.RefundSucceeded, Amount: 400, Currency: "JPY", Metadata: map[string]string{"purchase_id": l.mina.String()}, CreatedAt: time.Now()},
		payprovider.Refund{ID: "re_part", IntentID: intentOf(l.mina), Status: payprovider.RefundSucceeded, Amount: 100, Currency: "JPY", CreatedAt: time.Now()}, // by hand, and noted
		payprovider.Refund{ID: "re_before", IntentID: intentOf(l.otto), Status: payprovider.RefundFailed, Amount: 300, Currency: "JPY", CreatedAt: time.Now()})
	l.note("re_part", 100)
	r := l.compare()
	if len(r.Differences)+len(r.UnderWay) != 0 || r.Intents != 3 || r.Refunds != 3 {
		t.Errorf("got %+v", r)
	}
	if got := *r.Totals["JPY"]; got != (audit.Totals{CapturedHere: 700, CapturedThere: 700, RefundedHere: 400, RefundedThere: 400}) {
		t.Errorf("the totals are %+v", got)
	}
}

// calledUnpaid has a part of mina's payment captured at the provider, an amount given back by
// hand, and the payment called unpaid, as the guide says.
func (l *ledgers) calledUnpaid(back money.Amount) {
	l.t.Helper()
	l.there.intents[0].Received = 150
	l.there.refunds = append(l.there.refunds, payprovider.Refund{ID: "re_part", IntentID: intentOf(l.mina), Status: payprovider.RefundSucceeded, Amount: back, Currency: "JPY", CreatedAt: time.Now()})
	l.sql(`UPDATE payments SET phase = 'cancelled', ending = 'unpaid', received = 0, resolved_as = 'unpaid', resolved_by = 'operator:ops', resolve_reason = 'a part was captured' WHERE amount = 400`)
}

func TestAPartThatWasGivenBackBeforeItWasCalledUnpaidIsNoDifference(t *testing.T) {
	t.Parallel()
	l := newLedgers(t)
	l.calledUnpaid(150)
	if r := l.compare(); len(r.Differences)+len(r.UnderWay) != 0 {
		t.Errorf("got %+v", r)
	}
}

// Each way in which the books can differ is found, and named with its purchase.
func TestEveryDifferenceOfTheBooksIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(l *ledgers)
		what  string
	}{
		"captured there, unknown here": {func(l *ledgers) {
			l.there.intents = append(l.there.intents, payprovider.Intent{ID: "pi_two", Received: 400, Currency: "JPY", Metadata: map[string]string{"purchase_id": l.mina.String()}, CreatedAt: time.Now()})
		}, "no payment here has this intent"},
		"captured there, cancelled here": {func(l *ledgers) {
			l.sql(`UPDATE payments SET phase = 'cancelled', ending = 'expired', received = 0 WHERE amount = 400`)
		}, "captured at the provider, and cancelled here"},
		"called unpaid, and a yen was kept": {func(l *ledgers) { l.calledUnpaid(149) }, "another amount"},
		"captured here, not there": {func(l *ledgers) {
			l.there.intents[0].Received, l.there.intents[0].Status = 0, payprovider.Canceled
		}, "not captured at the provider: canceled"},
		"captured here, unknown there": {func(l *ledgers) { l.there.intents = l.there.intents[1:] }, "does not know the intent"},
		"a yen less":                   {func(l *ledgers) { l.there.intents[0].Received-- }, "another amount"},
		"another currency":             {func(l *ledgers) { l.there.intents[0].Currency = "USD" }, "another amount or currency"},
		"another purchase":             {func(l *ledgers) { l.there.intents[0].Metadata["purchase_id"] = l.otto.String() }, "of another purchase"},
		"refunded here, unknown there": {func(l *ledgers) { l.there.refunds = nil }, "does not know the refund"},
		"refunded here, failed there":  {func(l *ledgers) { l.there.refunds[0].Status = payprovider.RefundFailed }, "the refund is succeeded, at the provider failed"},
		"refunded there, failed here": {func(l *ledgers) {
			l.sql(`UPDATE refunds SET state = 'failed', finished_at = NULL`)
		}, "the refund is failed, at the provider succeeded"},
		"refunded there and resolved by hand": {func(l *ledgers) {
			l.sql(`UPDATE refunds SET state = 'resolved', resolved_by = 'operator:ops', resolve_reason = 'by bank'`)
		}, "the refund is resolved, at the provider succeeded"},
		"refunded there by hand": {func(l *ledgers) {
			l.there.refunds = append(l.there.refunds, payprovider.Refund{ID: "re_hand", IntentID: intentOf(l.mina), Status: payprovider.RefundSucceeded, Amount: 400, Currency: "JPY", CreatedAt: time.Now()})
		}, "no refund here has its id"},
		"noted as refunded by hand, unknown there": {func(l *ledgers) { l.note("re_hand", 100) }, "does not know the refund"},
		"refunded by hand, and failed there": {func(l *ledgers) {
			l.note("re_hand", 100)
			l.there.refunds = append(l.there.refunds, payprovider.Refund{ID: "re_hand", IntentID: intentOf(l.mina), Status: payprovider.RefundFailed, Amount: 100, Currency: "JPY", CreatedAt: time.Now()})
		}, "the refund is succeeded, at the provider failed"},
		"refunded there of an intent of an older span": {func(l *ledgers) {
			l.there.intents[0].CreatedAt = l.from.Add(-time.Minute)
			l.there.refunds = append(l.there.refunds, payprovider.Refund{ID: "re_hand", IntentID: intentOf(l.mina), Status: payprovider.RefundSucceeded, Amount: 400, Currency: "JPY", CreatedAt: time.Now()})
		}, "no refund here has its id"},
		"a yen less refunded": {func(l *ledgers) { l.there.refunds[0].Amount-- }, "another amount or currency than the refund's"},
	} {
		l := newLedgers(t)
		c.spoil(l)
		r := l.compare()
		if len(r.Differences) != 1 || !strings.Contains(r.Differences[0].What, c.what) || r.Differences[0].PurchaseID == "" || len(r.UnderWay) != 0 {
			t.Errorf("%s: %+v, under way %+v", name, r.Differences, r.UnderWay)
		}
	}
}

// What is still open here, on either side of its call, is no difference.
func TestWhatIsUnderWayIsListedApart(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(l *ledgers){
		"capturing": func(l *ledgers) {
			l.sql(`UPDATE payments SET phase = 'capturing', received = 0, finished_at = NULL WHERE amount = 400`)
		},
		"captured": func(l *ledgers) {
			l.sql(`UPDATE payments SET phase = 'captured', finished_at = NULL WHERE amount = 400`)
		},
		"cancelled, and woken": func(l *ledgers) {
			l.sql(`UPDATE payments SET phase = 'cancelled', ending = 'expired', received = 0, due_at = clock_timestamp() WHERE amount = 400`)
		},
		"pending refund": func(l *ledgers) { l.sql(`UPDATE refunds SET state = 'pending', finished_at = NULL`) },
		"open refund": func(l *ledgers) {
			l.sql(`UPDATE refunds SET state = 'open', finished_at = NULL, provider_id = NULL`)
		},
		"woken refund": func(l *ledgers) {
			l.sql(`UPDATE refunds SET due_at = clock_timestamp()`)
			l.there.refunds[0].Status = payprovider.RefundFailed
		},
	} {
		l := newLedgers(t)
		spoil(l)
		if r := l.compare(); len(r.Differences) != 0 || len(r.UnderWay) != 1 {
			t.Errorf("%s: %+v, under way %+v", name, r.Differences, r.UnderWay)
		}
	}
}

// The books change while they are read: what has moved on both sides is no difference.
func TestWhatMovesWhileTheBooksAreReadIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	l := newLedgers(t)
	intent, back := l.there.intents[0], l.there.refunds[0]
	l.there.intents[0].Received, l.there.intents[0].Status = 0, payprovider.RequiresCapture // when the list is made
	l.there.refunds[0].Status = payprovider.RefundPending
	l.there.before = func(call string) {
		switch call {
		case "intent":
			l.there.intents[0] = intent
		case "refund":
			l.there.refunds[0] = back
		}
	}
	if r := l.compare(); len(r.Differences) != 0 || *r.Totals["JPY"] != (audit.Totals{CapturedHere: 700, CapturedThere: 700, RefundedHere: 300, RefundedThere: 300}) {
		t.Errorf("got %+v", r)
	}
}

// An intent belongs to the span in which the provider has made it, by the provider's
// clock.
func TestWhatTheProviderHasMadeInAnotherSpanIsNotMissing(t *testing.T) {
	t.Parallel()
	l := newLedgers(t)
	l.there.intents[0].CreatedAt, l.there.refunds[0].CreatedAt = l.to.Add(time.Second), l.from.Add(-time.Second)
	if r := l.compare(); len(r.Differences) != 0 || r.Intents != 1 || r.Refunds != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestAComparisonFailsWhenTheProviderDoes(t *testing.T) {
	t.Parallel()
	l := newLedgers(t)
	away := &payprovider.Error{Kind: payprovider.KindUnavailable}
	if _, err := audit.ComparePayments(t.Context(), l.db, cutOff{l.there, away}, l.from, l.to); !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
}

func intentOf(purchaseID uuid.UUID) string { return "pi_" + purchaseID.String() } // as BuyByCard has it

// cutOff is books whose lists end early.
type cutOff struct {
	*books
	err error
}

func (c cutOff) ListRefunds(context.Context, time.Time, time.Time, func(payprovider.Refund) error) error {
	return c.err
}
