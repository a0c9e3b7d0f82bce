package refunds

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// steps are the steps of the timeline that states are.
var steps = map[payment.RefundState]string{
	payment.RefundPending:        payment.StepRefundPending,
	payment.RefundRequiresAction: payment.StepRefundAction,
	payment.RefundSucceeded:      payment.StepRefunded,
	payment.RefundFailed:         payment.StepRefundFailed,
	payment.RefundCanceled:       payment.StepRefundFailed,
}

// find finds what the provider has of this refund, by its id or by ours in its metadata, and records
// the refunds of the intent that are not ours. Our rows are read before the list: an id of theirs
// that is stored by then is later than other attempts, which show their ends.
func (o *run) find(ctx context.Context) (payprovider.Refund, bool, error) {
	rows, err := payment.RefundsOfPurchases(ctx, o.db, []uuid.UUID{o.PurchaseID})
	if err != nil {
		return payprovider.Refund{}, false, err
	}
	all, err := call(ctx, o, func(ctx context.Context) ([]payprovider.Refund, error) { return o.provider.RefundsOf(ctx, o.intentID) })
	if err != nil {
		return payprovider.Refund{}, false, err
	}
	o.answered = true
	found, ok := pick(all, o.Refund, rows[o.PurchaseID])
	return found, ok, o.recordOthers(ctx, all, rows[o.PurchaseID], found)
}

// pick returns which of the refunds of an intent is the one that we want, if any: one with its id or,
// in the metadata, ours, unless another row has it, or it is a failure of an earlier attempt. One that
// refunds money comes before one that does not, and then the one whose id we have.
func pick(all []payprovider.Refund, wanted *payment.Refund, rows []payment.Refund) (found payprovider.Refund, ok bool) {
	best := 0
	for _, one := range all {
		refused, known := payment.RefundStateOf(one.Status).Refused(), postgres.ValueOf(wanted.ProviderID) == one.ID
		stale := refused && !known && one.Metadata[payprovider.AttemptKey] != strconv.Itoa(wanted.Attempt)
		others := slices.ContainsFunc(rows, func(r payment.Refund) bool { return r.ID != wanted.ID && postgres.ValueOf(r.ProviderID) == one.ID })
		if !known && one.Metadata[payprovider.RefundKey] != wanted.ID.String() || stale || others {
			continue
		}
		rank := 1
		if known {
			rank++
		}
		if !refused {
			rank += 2
		}
		if rank > best {
			found, ok, best = one, true, rank
		}
	}
	return found, ok
}

// call makes a call within the lease.
func call[T any](ctx context.Context, o *run, do func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, o.settings.Lease)
	defer cancel()
	got, err := do(ctx)
	o.hit("refunds.called")
	return got, err
}

// apply stores what the provider says of the refund.
func (o *run) apply(ctx context.Context, got payprovider.Refund) error {
	if wrong := o.check(got); wrong != "" {
		return o.snooze(ctx, &payprovider.Error{Kind: payprovider.KindMismatch, Call: "refund", Message: wrong})
	}
	o.State, o.ProviderID, o.Failure, o.Faults, o.Stuck = payment.RefundStateOf(got.Status), &got.ID, nil, 0, false
	if !o.State.Refused() {
		o.more, o.Amount = got.Amount-o.Amount, got.Amount
	} else {
		failure := cmp.Or(got.Failure, string(got.Status))
		o.Failure = &failure
	}
	return o.write(ctx)
}

// check returns what is wrong with a refund that the provider says is ours. A call over more may have
// come first, before others gave a part back.
func (o *run) check(got payprovider.Refund) string {
	switch {
	case got.IntentID != o.intentID:
		return fmt.Sprintf("%s is of intent %q, not of %s", got.ID, got.IntentID, o.intentID)
	case got.Amount < o.Amount || got.Amount > o.Asked || got.Currency != o.Currency:
		return fmt.Sprintf("%s gives back %d %s, not %d %s", got.ID, got.Amount, got.Currency, o.Amount, o.Currency)
	case got.ID == "" || payment.RefundStateOf(got.Status) == "":
		return fmt.Sprintf("%s has the status %q", got.ID, got.Status)
	}
	return ""
}

// write stores the new state, what it means for the purchase, and the step, together.
func (o *run) write(ctx context.Context) error {
	var next *time.Duration
	if wait := o.wait(); wait > 0 {
		next = &wait
	}
	err := postgres.InTx(ctx, o.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		queueWrite(&b, o.Refund, 0, next)
		if o.State != o.was || o.more > 0 {
			if o.State.Finished() != o.was.Finished() {
				purchase.QueueFollow(&b, o.PurchaseID)
			}
			payment.QueueSteps(&b, payment.Step{PurchaseID: o.PurchaseID, Event: steps[o.State], Detail: o.detail()})
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return fmt.Errorf("refunds.write(%s): %w", o.ID, err)
	}
	o.hit("refunds.written")
	o.logState()
	return nil
}

// detail is what the timeline says beside the state.
func (o *run) detail() *string {
	if o.State == payment.RefundSucceeded && o.Amount < o.captured {
		currency := money.Currency(o.Currency)
		said := fmt.Sprintf("%s of the %s that the card has paid", currency.Format(o.Amount), currency.Format(o.captured))
		return &said
	}
	return o.Failure
}

// checkShare is the part of its age after which a refund that waits is checked again.
const checkShare = 4

// wait is when to check a refund again that the provider works on: soon while it is
// new, seldom when it is old. Others wait for an event.
func (o *run) wait() time.Duration {
	const maxPause = 6 * time.Hour
	if o.State != payment.RefundPending && o.State != payment.RefundRequiresAction {
		return 0
	}
	return min(max(o.settings.Recheck, o.Age/checkShare), maxPause)
}

// snooze releases a refund after a call that has not reported its state: it is due again later. A refund that it may have
// made is searched for next time.
func (o *run) snooze(ctx context.Context, err error) error {
	e := payprovider.AsError(err, "refund")
	kind := e.Kind
	o.metrics.faults.WithLabelValues(string(kind)).Inc()
	o.Faults++
	if !o.State.Refused() { // that has a reason of its own
		failure := failureOf(e)
		o.Failure = &failure
	}
	next := pause(o.Faults, kind)
	if e.IsKeyReused() { // a further key follows, and no person
		next = pause(o.Faults, payprovider.KindUnknown)
	}
	if o.answered || kind != payprovider.KindUnavailable && kind != payprovider.KindUnknown && kind != payprovider.KindLimited { // these report nothing new
		o.Stuck = isStuck(e)
	}
	if !e.RetryAt.IsZero() {
		next = max(next, time.Until(e.RetryAt))
	}
	log := o.logger.Warn
	if isStuck(e) {
		log = o.logger.Error // time alone will not help
	}
	log("a refund waits", "refund", o.ID, "purchase", o.PurchaseID, "state", o.State, "again_in", next, "error", err)
	return write(ctx, o.db, o.Refund, 0, &next)
}

// failureOf returns why the provider has refused a refund, for people.
func failureOf(e *payprovider.Error) string {
	return strings.Trim(e.Code+": "+e.Message, ": ")
}

// isStuck reports whether a failed query or call says that time alone will not help. An
// idempotency key that was used for something else is replaced, so that is none.
func isStuck(e *payprovider.Error) bool {
	switch e.Kind {
	case payprovider.KindMismatch, payprovider.KindRefused, payprovider.KindConflict, payprovider.KindForbidden:
		return !e.IsKeyReused()
	}
	return false
}

// longestPause is how long a refund waits at most for what time alone mends.
const longestPause = time.Minute

// pause is how long a refund waits after so many faults in a row: 1, 2, 4 … 60 s, up to 5
// minutes when the key is refused, and an hour when a person has to check the refund.
func pause(faults int, kind payprovider.ErrorKind) time.Duration {
	const forKey, forPeople = 5 * time.Minute, time.Hour
	switch kind {
	case payprovider.KindUnavailable, payprovider.KindUnknown, payprovider.KindLimited:
		return min(time.Second<<min(faults-1, 6), longestPause)
	case payprovider.KindForbidden:
		return min(time.Second<<min(faults-1, 9), forKey)
	}
	return forPeople
}

// logState logs and counts a new state.
func (o *run) logState() {
	if o.more > 0 {
		o.metrics.twice.Inc()
		o.logger.Error("money was given back twice: by others, and by a call of ours that was under way", "refund", o.ID, "purchase", o.PurchaseID,
			"too_much", int64(o.more), "currency", o.Currency)
	}
	if o.State == o.was {
		return
	}
	o.metrics.states.WithLabelValues(string(o.State)).Inc()
	switch {
	case o.State == payment.RefundSucceeded:
		o.logger.Info("a refund has succeeded", "refund", o.ID, "purchase", o.PurchaseID, "provider_id", postgres.ValueOf(o.ProviderID))
	case o.was == payment.RefundSucceeded:
		o.logger.Error("a refund has failed that had succeeded; it waits for an operator", "refund", o.ID, "purchase", o.PurchaseID, "state", o.State, "failure", postgres.ValueOf(o.Failure))
	case o.State.Refused():
		o.logger.Error("the provider has refused a refund; it waits for an operator", "refund", o.ID, "purchase", o.PurchaseID, "failure", postgres.ValueOf(o.Failure))
	}
}

// paidTwice begins the failure of a refund whose money was given back by hand and at the provider.
const paidTwice = "paid twice: "

// confirm lists what the provider has of a refund that was resolved by hand, until it has answered:
// only what is there now says whether the money was refunded twice. What is said once is kept in
// failure, also when a worker ends between the list and this.
func (o *run) confirm(ctx context.Context) error {
	before, err := remainingOf(ctx, o.db, o.ID)
	if err != nil {
		return err
	}
	var next *time.Duration
	if _, _, err := o.find(ctx); err != nil {
		o.Faults++
		wait := pause(o.Faults, payprovider.AsError(err, "refund").Kind)
		next = &wait
		o.logger.Warn("it is not known whether a refund that was resolved by hand was made, too", "refund", o.ID, "purchase", o.PurchaseID, "again_in", wait, "error", err)
	} else {
		o.Faults = 0
	}
	left, err := remainingOf(ctx, o.db, o.ID)
	if err != nil {
		return err
	}
	tooMuch, known := o.Amount-left.Debt, postgres.ValueOf(o.Failure)
	said := paidTwice + money.Currency(o.Currency).Format(tooMuch) + " too much, by hand and at the provider"
	wasTwice := strings.HasPrefix(known, paidTwice)
	isLess := wasTwice && left.Debt > before.Debt                                                 // a bank has sent it back
	twice := tooMuch > 0 && !isLess && (left.Debt < before.Debt || o.Amount > 0 && known != said) // of one over 0, others had given too much before
	switch {
	case tooMuch > 0 && (twice || wasTwice):
		o.Failure = &said
	case wasTwice:
		o.Failure = nil
	}
	if err := write(ctx, o.db, o.Refund, 0, next); err != nil {
		return err
	}
	if twice {
		o.metrics.twice.Inc()
		o.logger.Error("money was given back twice: by hand, as somebody has said, and at the provider", "refund", o.ID, "purchase", o.PurchaseID,
			"by_hand", int64(o.Amount), "too_much", int64(tooMuch), "currency", o.Currency)
	}
	return nil
}

// beingMade is the condition that another refund of the purchase than r is just being made: r waits
// for it, as both would ask for the same money.
const beingMade = `EXISTS (SELECT FROM refunds o WHERE o.purchase_id = r.purchase_id AND o.id <> r.id AND o.state = 'open' AND o.attempt > 0)`

// remaining is how much money remains for a card refund. Less than nothing: more was
// given back than was to be.
type remaining struct {
	Debt   money.Amount // of what is to be refunded
	Charge money.Amount // of the charge, at the provider: it refuses more
	Waits  bool         // for another refund of the purchase, which is just being made
}

// remainingOf returns how much money remains for a card refund.
func remainingOf(ctx context.Context, db postgres.DB, id uuid.UUID) (r remaining, err error) {
	err = db.QueryRow(ctx, `
		SELECT `+payment.LeftSQL+`, coalesce((SELECT received FROM payments WHERE purchase_id = r.purchase_id), 0) -
		    coalesce((SELECT sum(o.amount) FROM refunds o WHERE o.purchase_id = r.purchase_id AND o.id <> r.id AND o.state IN ('pending', 'requires_action', 'succeeded')), 0)::bigint, `+beingMade+`
		FROM refunds r WHERE id = $1`, id).Scan(&r.Debt, &r.Charge, &r.Waits)
	return r, fault.At(err, "refunds.remainingOf(%s)", id)
}

// queueWrite writes what a worker has found out about a card refund: amount, state, attempt, the
// provider's id, failure, faults, and whether it is stuck. The batch fails with [lease.ErrFenced] unless the refund
// still has the version of r. A further attempt is refused in the same way when it would give
// back more than is left, or while another refund of the purchase is being made, and a smaller
// amount when more is left. extend is for how long the
// lease is renewed; with 0 it is released, and is due after next, or not
// before an event comes.
// attempt_at and asked are set when the attempt grows. What was resolved by hand stays so.
//
// One that has succeeded has no failure. After the commit the refund has r.Version + 1.
func queueWrite(b *pgx.Batch, r *payment.Refund, extend time.Duration, next *time.Duration) {
	if r.State == payment.RefundSucceeded {
		r.Failure = nil
	}
	sql, args := payment.RefundLeases.Write(r.Item(), lease.Handover{Extend: extend, Next: next, Seen: r.Wakes}, `
		    state = $6, attempt = $7, attempt_at = CASE WHEN attempt < $7 THEN clock_timestamp() ELSE attempt_at END,
		    asked = CASE WHEN attempt < $7 THEN $12::bigint ELSE asked END, provider_id = $8, failure = $9, faults = $10, stuck = $11, amount = $12,
		    waiting_since = CASE WHEN $10::integer > 0 THEN coalesce(waiting_since, clock_timestamp()) END,
		    finished_at = CASE WHEN $6 IN ('succeeded', 'resolved') THEN coalesce(finished_at, clock_timestamp()) ELSE finished_at END`,
		` AND (state = 'resolved') = ($6 = 'resolved') AND (attempt = $7 OR $12::bigint <= `+payment.LeftSQL+` AND NOT `+beingMade+`) AND (amount <= $12 OR $12 >= `+payment.LeftSQL+`)`,
		r.State, r.Attempt, r.ProviderID, r.Failure, r.Faults, r.Stuck, int64(r.Amount))
	b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error { return lease.Fenced(r.Item(), tag, 1) })
}

// write is queueWrite for a write that stands alone. It counts up r.Version.
func write(ctx context.Context, db postgres.DB, r *payment.Refund, extend time.Duration, next *time.Duration) error {
	var b pgx.Batch
	queueWrite(&b, r, extend, next)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("refunds.write: %w", err)
	}
	r.Version++
	return nil
}
