// Package refunds makes card refunds at the provider, each once; operators resolve the
// rest.
//
//	claim ─┬─ nothing was sent ───▶ store the key ──────────────────────────┬─▶ create ─┐
//	       └─ it may exist, ──────▶ list the intent's refunds ─┬─ not there ─┘           ├─▶ write
//	          or others do                                     └─ there, or nothing left ┘
//
// [Runner.Run] processes one refund as far as possible. No call is made in a transaction or
// while a row is locked, and nothing is refunded twice:
//
//   - The key re:<refund>:<attempt> is stored before the first call with it. The
//     provider makes one refund for a key, for 24 hours.
//   - When a refund may exist (a worker died, an answer was lost, an event came, an operator
//     retries), or is refused, the refunds of the intent are listed first. The one with the
//     stored id is taken, or else one with our id in its metadata. The others are recorded, and ours
//     asks for what is left; when nothing is, it has succeeded with the amount 0.
//   - A key that may be older than 23 hours is not used again. It is replaced sooner only for
//     all that is left of the charge (then the provider refuses a second refund), after a refusal, or when
//     the provider repeats a fault that it has stored under the key: that call is over. A
//     smaller amount has the same key.
//   - One that was resolved by hand is only searched for: until the provider has answered, and
//     when an event reports it.
//
// Intent, amount and currency of each answer are checked. A discrepancy changes no state:
// it is logged, counted, and checked again slowly.
//
// A refund that succeeds makes its purchase refunded, and a later failure makes it
// refunding again, in the transaction that writes the refund: refunds, then purchases. A
// refused refund waits for an operator, see [Service].
//
// Failpoints, each with the id of the purchase:
//
//	refunds.claimed         nothing was called yet
//	refunds.attempt.stored  the key is stored, and not yet used
//	refunds.called          the provider has answered, and nothing of it is stored
//	refunds.written         the answer is stored
package refunds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/tracing"
)

// Settings are how long things take.
type Settings struct {
	Lease   time.Duration // after this another worker may continue a refund; longer than a call
	Recheck time.Duration // a new refund that is not final is fetched this often, an old one more seldom
}

// Outcome is how a run has ended.
type Outcome string

// The outcomes of runs.
const (
	Nothing  Outcome = "nothing"  // the refund has changed, or is another worker's
	Waits    Outcome = "waits"    // for the provider
	Finished Outcome = "finished" // it has succeeded, or was resolved by hand
	Refused  Outcome = "refused"  // by the provider; it waits for an operator
)

// Runner does card refunds at the provider.
type Runner struct {
	db       postgres.Pool
	provider payprovider.Provider
	settings Settings
	logger   *slog.Logger
	metrics  *metrics
}

type metrics struct {
	states *prometheus.CounterVec // by state
	faults *prometheus.CounterVec // by kind
	twice  prometheus.Counter
}

// NewRunner returns a Runner. db is a pool, or a view of it for transactions that may wait
// for locks; provider makes the refunds.
func NewRunner(db postgres.Pool, provider payprovider.Provider, settings Settings, logger *slog.Logger, registry prometheus.Registerer) *Runner {
	m := &metrics{
		states: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_refund_states_total", Help: "New states of card refunds. Those that failed or were canceled wait for an operator.",
		}, []string{"state"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_refund_faults_total", Help: "Calls for refunds that did not return a state, by kind. A mismatch is for a person.",
		}, []string{"kind"}),
		twice: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_refunds_paid_twice_total", Help: "Refunds whose money was given back twice: resolved by hand, or refunded by others, and made at the provider, too. Must stay 0.",
		}),
	}
	registry.MustRegister(m.states, m.faults, m.twice)
	telemetry.Expect(m.states, payment.RefundPending, payment.RefundRequiresAction, payment.RefundSucceeded, payment.RefundFailed, payment.RefundCanceled)
	telemetry.Expect(m.faults, payprovider.ErrorKinds...)
	return &Runner{db: db, provider: provider, settings: settings, logger: logger, metrics: m}
}

// run is one run of a refund that this worker has claimed.
type run struct {
	*Runner
	*payment.Refund
	intentID string
	dispute  *payprovider.Dispute // of the charge
	was      payment.RefundState  // in the table
	captured money.Amount
	more     money.Amount // than was left: it was made after others had given a part back
	answered bool         // by the provider, in this run: what was stuck continues

	reported  bool // an event about the payment has not been reviewed yet
	outOfBand bool // it was paid
}

// Run does a refund as far as it goes now. A failure at the provider is stored
// with the refund, which is due again in time. An error is a fault of the database: the
// refund is due again when the lease ends.
func (r *Runner) Run(ctx context.Context, item lease.Item) (Outcome, error) {
	claimed, ok, err := payment.ClaimRefund(ctx, r.db, item, r.settings.Lease)
	if err != nil || !ok {
		return Nothing, err
	}
	paid, ok, err := payment.Get(ctx, r.db, claimed.PurchaseID)
	if err != nil {
		return Nothing, err
	}
	if !ok || paid.IntentID == nil {
		return Nothing, fmt.Errorf("refunds.Run(%s): purchase %s has no payment at the provider", claimed.ID, claimed.PurchaseID)
	}
	one := &run{Runner: r, Refund: &claimed, intentID: *paid.IntentID, dispute: paid.Dispute, was: claimed.State, captured: paid.Received, outOfBand: paid.PaidOutOfBand(), reported: paid.DueAt != nil}
	one.hit("refunds.claimed")
	ctx, span := job.Continue(ctx, r.db, paid.PurchaseID, "refund", "triprize.refund_id", claimed.ID.String())
	result := Nothing
	if err = one.process(ctx); err == nil {
		result = one.result()
	}
	span.Set(tracing.Outcome, string(result))
	span.End(err)
	if errors.Is(err, lease.ErrFenced) { // another worker continues
		err = nil
	}
	return result, err
}

func (o *run) result() Outcome {
	switch {
	case o.State.Finished():
		return Finished
	case o.State.Refused():
		return Refused
	}
	return Waits
}

func (o *run) hit(name string) {
	failpoint.Hit(name, func() []string { return []string{o.PurchaseID.String()} })
}

// process chooses the call, as in the package comment.
func (o *run) process(ctx context.Context) error {
	switch {
	case o.outOfBand && o.State == payment.RefundOpen:
		return o.fail(ctx, "the purchase was paid out of band: return the money in the same way, and resolve this refund")
	case o.outOfBand: // nothing of it is at the provider
		return o.write(ctx)
	case o.State == payment.RefundResolved:
		return o.confirm(ctx)
	case o.State == payment.RefundOpen && o.Attempt == 0 && o.ProviderID == nil:
		left, err := remainingOf(ctx, o.db, o.ID)
		switch {
		case err != nil:
			return err
		case left.Waits:
			soon := min(max(o.Age/checkShare, time.Second), longestPause)
			return write(ctx, o.db, o.Refund, 0, &soon)
		case left.Debt >= o.Amount && o.Wakes == 0 && !o.reported: // no event has reported another refund
			return o.create(ctx, 1)
		}
	}
	found, ok, err := o.find(ctx)
	if err == nil && !ok && o.ProviderID != nil { // the list is late, or it is gone
		found, err = call(ctx, o, func(ctx context.Context) (payprovider.Refund, error) { return o.provider.Refund(ctx, *o.ProviderID) })
		ok = true
	}
	if err != nil {
		return o.snooze(ctx, err)
	}
	if state := payment.RefundStateOf(found.Status); ok && !(state.Refused() && (state == o.State || o.Amount == 0)) {
		return o.apply(ctx, found)
	}
	if o.State == payment.RefundSucceeded { // others had left nothing
		return o.write(ctx)
	}
	return o.rest(ctx, func(left remaining, less bool) error {
		switch {
		case o.State.Refused(): // only an operator has it tried again
			return o.write(ctx)
		case less && o.Attempt > 0 && o.Amount == left.Charge: // the provider refuses the second of both
			return o.create(ctx, o.Attempt+1)
		}
		return o.create(ctx, max(o.nextAttempt(left), 1))
	})
}

// rest continues with what other refunds have left, which may be less than was wanted. When it
// is nothing, the money is with the buyer. An attempt that the provider has refused was over
// another amount: it is not this refund any more.
func (o *run) rest(ctx context.Context, next func(left remaining, less bool) error) error {
	left, err := remainingOf(ctx, o.db, o.ID)
	switch {
	case err != nil:
		return err
	case left.Debt <= 0:
		o.State, o.Amount, o.ProviderID, o.Failure, o.Faults, o.Stuck = payment.RefundSucceeded, 0, nil, nil, 0, false
		return o.write(ctx)
	}
	less := left.Debt < o.Amount
	if less {
		o.Amount, o.ProviderID = left.Debt, nil
	}
	return next(left, less)
}

// nextAttempt is the attempt whose key is used next, when the provider has nothing of the
// present one: the same, unless its key may be forgotten, or has failed several times. A call
// with the present key may be on its way still: a further key needs that the refund is of all
// that is left of the charge, so that the provider refuses the second of both.
func (o *run) nextAttempt(left remaining) int {
	const inVain = 3
	if o.KeyAge >= payprovider.KeyLifetime || o.Faults > 0 && o.Faults%inVain == 0 && o.Amount == left.Charge {
		return o.Attempt + 1
	}
	return o.Attempt
}

// create makes the refund. Its key is stored first, and the lease renewed.
//
// When others have given a part back since the key was stored, the rest is asked for with the same
// key, as a call over more may be on its way with it. Of both the provider makes the one that comes
// first, and refuses the other (idempotency_error):
//
//   - stored, and not called: the rest is made. The worker that was stopped before its call is refused.
//   - called, and the answer is lost: it is in the list, or the rest is refused. Then the call over more is
//     repeated, which makes nothing while the provider remembers the key: it has the answer, or the
//     fault with which that call has ended; then a further key is safe.
//   - called, and refused: that call is over, and the rest has a further key.
func (o *run) create(ctx context.Context, attempt int) error {
	if o.dispute.HoldsMoney() { // the bank gives it to one of both. An operator has it tried again when the dispute is won
		return o.fail(ctx, fmt.Sprintf("disputed: the bank has the money, and decides (%s, %s)", o.dispute.ID, o.dispute.Status))
	}
	if o.Attempt < attempt {
		o.Attempt, o.Asked = attempt, o.Amount
	}
	if err := write(ctx, o.db, o.Refund, o.settings.Lease, nil); err != nil {
		return err
	}
	o.hit("refunds.attempt.stored")
	got, err := o.ask(ctx, o.Amount)
	if err != nil && payprovider.AsError(err, "refund").IsKeyReused() && o.Asked > o.Amount {
		if err := write(ctx, o.db, o.Refund, o.settings.Lease, nil); err != nil { // renews the lease for another call
			return err
		}
		got, err = o.ask(ctx, o.Asked)
	}
	if err == nil {
		return o.apply(ctx, got)
	}
	e := payprovider.AsError(err, "refund")
	switch e.Kind {
	case payprovider.KindRefused, payprovider.KindConflict, payprovider.KindDeclined:
		return o.refused(ctx, e)
	}
	if e.Replayed {
		o.Attempt++ // what the first call with this key has made, if anything, is in the list by now, and nothing more will come of it
	}
	return o.snooze(ctx, err)
}

// ask asks the provider for the refund with the key of the attempt.
func (o *run) ask(ctx context.Context, amount money.Amount) (payprovider.Refund, error) {
	return call(ctx, o, func(ctx context.Context) (payprovider.Refund, error) {
		return o.provider.CreateRefund(ctx, payprovider.NewRefund{
			Key: fmt.Sprintf("re:%s:%d", o.ID, o.Attempt), IntentID: o.intentID, Amount: amount,
			Metadata: map[string]string{payprovider.RefundKey: o.ID.String(), payprovider.PurchaseKey: o.PurchaseID.String(), payprovider.CampaignKey: o.CampaignID.String(),
				payprovider.AttemptKey: strconv.Itoa(o.Attempt)},
		})
	})
}

// fail stores why the refund is not made: it waits for an operator.
func (o *run) fail(ctx context.Context, failure string) error {
	o.State, o.Failure, o.Faults, o.Stuck = payment.RefundFailed, &failure, 0, false
	return o.write(ctx)
}

// refused handles a refusal to make the refund: others may have refunded the charge by
// hand, all of it or a part.
func (o *run) refused(ctx context.Context, refusal *payprovider.Error) error {
	if err := write(ctx, o.db, o.Refund, o.settings.Lease, nil); err != nil { // renews the lease for another call
		return err
	}
	found, ok, err := o.find(ctx)
	switch {
	case err != nil:
		return o.snooze(ctx, err)
	case ok:
		return o.apply(ctx, found)
	}
	return o.rest(ctx, func(_ remaining, less bool) error {
		if less {
			return o.create(ctx, o.Attempt+1)
		}
		return o.fail(ctx, failureOf(refusal))
	})
}
