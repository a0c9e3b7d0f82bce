// Package cards leads card payments through their phases, and handles events of the
// provider.
//
//	task ─▶ claim ─▶ next move (decide.go) ─┬─▶ store the phase ─▶ call ─▶ store the result ──────┐
//	             ▲                          ├─▶ release it: due later, or at the next event       │
//	             │                          └─▶ its end is known: a transaction of the sale       │
//	             └────────────────────────────────────────────────────────────────────────────────┘
//
// A [Runner] claims a payment and leads it as far as possible. The next move is a pure
// function of the stored phase and of the provider's answers in this run. It promises:
//
//   - An intent whose id is not stored is never confirmed, and a purchase confirms one
//     intent at most. A worker that was stopped writes nothing, and a call that it still
//     makes is harmless: the intent's own state allows each call once.
//   - From the phase confirming on, only data from the provider ends a payment. A new
//     claim asks first, and repeats no call blindly.
//   - Nothing is confirmed or captured after the end of the reservation; the database
//     decides at the write before the call. After capturing is stored, the money is taken.
//   - An answer must have our amount, currency, mode and purchase. Otherwise nothing of it
//     is stored, an error is logged, and the payment waits for an operator.
//   - No row is locked during a call, and no campaign is ever locked here.
//
// While the provider is away, slow or refuses, a payment waits with growing pauses, its
// job says so, and the deadline of its reservation moves along, up to its bound. One that
// meets a refused key, or waits for long, waits for an operator, until the provider answers.
//
// [Events] stores events by their ids, once each. An event about our own call, as most
// are, is handled by the statement that stores it. Any other event only wakes its payment;
// the runner then asks the provider, so the order of events does not matter. [Events.ListMissed] lists events without a webhook.
// A lost task costs time only.
//
// Package sale decides about positions and purchases.
//
// Failpoints, each with the purchase and its payment method:
//
//	payments.claim, payments.claimed                  around the claim, which moves what is reserved into creating
//	payments.<phase>.store, payments.<phase>.stored   around the write that moves a payment into a phase: creating
//	                                                  (with a further key), confirming, action,
//	                                                  processing, capturing, captured, expiring, ended
//	payments.<call>.call, payments.<call>.called      around a call: create, fetch, confirm, capture, cancel, review
//	payments.review.store, payments.review.stored     around the commit of disputes and of refunds by others
//	payments.events.store, payments.events.stored     around the write of events; about nothing
//	payments.events.work, payments.events.worked      around the commit of what events do; about nothing
package cards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/tracing"
)

// Runner leads payments. It never locks a campaign, and no row is locked while the
// provider is called.
type Runner struct {
	db       postgres.Pool
	provider payprovider.Provider
	settings Settings
	logger   *slog.Logger
	metrics  *metrics
}

// NewRunner returns a Runner.
func NewRunner(db postgres.Pool, provider payprovider.Provider, settings Settings, logger *slog.Logger, registry prometheus.Registerer) *Runner {
	return &Runner{db: db, provider: provider, settings: settings, logger: logger, metrics: newMetrics(registry)}
}

// Outcome is how a run has ended.
type Outcome string

// The outcomes of runs.
const (
	Nothing Outcome = "nothing"  // there is nothing to do, or the reference is older than the payment
	Waits   Outcome = "waits"    // it was released, and is due again at some time
	Fenced  Outcome = "fenced"   // another worker continues
	Settle  Outcome = "finalize" // its end is known: a transaction of the sale decides what becomes of it
)

// Result is what a run has come to.
type Result struct {
	Outcome  Outcome
	Ref      payment.Ref // with the version after the run
	Phase    payment.Phase
	Announce bool          // its job says something new of itself
	Messages []job.Message // of a job that it has made, to be dispatched
	Trace    string        // the traceparent of the run; empty: none
}

// Job returns the job of the payment, for shards.
func (r Result) Job() job.Ref {
	return r.Ref.Job().In(r.Trace)
}

// Settings are those of the runner.
type Settings struct {
	Lease       time.Duration // how long a claim lasts, by the database's clock
	CallTimeout time.Duration // bounds a call of the provider; less than Lease
	Recheck     time.Duration // a payment that is not final is checked this often at least
	ReturnURL   string        // where an authentication ends, if the purchase does not say
	Livemode    bool          // what everything from the provider must say

	// Release returns the request for the job that cancels a purchase whose dispute is lost, see [payment.Releases]; nil: none is cancelled.
	Release func(payment.Ref) (job.Request, error)
}

// Recheck is how often a payment that is not final is fetched from the provider at least.
const Recheck = time.Minute

// maxMoves bounds a run. The longest way, from the reservation to the capture with a
// fetch after every call, is shorter.
const maxMoves = 24

// Run claims a payment and leads it as far as it goes now. When ctx ends, no further
// call begins; one that is under way ends on its own, and what came of it is stored. An
// error is Postgres's: the payment is due again when the lease of the claim is over, so
// nothing is lost and the caller need not try again.
func (rn *Runner) Run(ctx context.Context, item lease.Item) (Result, error) {
	hit(item.ID, "", "claim")
	began := time.Now()
	p, ok, err := payment.Claim(ctx, rn.db, item, rn.settings.Lease)
	if err != nil {
		return Result{}, fmt.Errorf("cards.Run: %w", err)
	}
	if !ok {
		rn.metrics.runs.WithLabelValues(string(Nothing)).Inc()
		return Result{Outcome: Nothing}, nil
	}
	r := &run{Runner: rn, known: known{p: p}, began: began, leased: began}
	if p.LeaseUntil != nil {
		r.claimedAt = p.LeaseUntil.Add(-rn.settings.Lease)
	}
	if p.AttemptAt != nil && p.AttemptAt.Equal(r.claimedAt) {
		rn.metrics.phases.WithLabelValues(string(payment.Creating)).Inc() // with the claim
	}
	r.hit("claimed")
	ctx, span := job.Continue(ctx, rn.db, p.PurchaseID, "payment")
	outcome, err := r.process(ctx)
	if errors.Is(err, lease.ErrFenced) {
		outcome, err = Fenced, nil
	}
	span.Set(tracing.Outcome, string(outcome))
	span.End(err)
	if err != nil {
		return Result{}, fmt.Errorf("cards.Run(%s): %w", item.ID, err)
	}
	rn.metrics.runs.WithLabelValues(string(outcome)).Inc()
	return Result{Outcome: outcome, Ref: r.p.Ref(), Phase: r.p.Phase, Announce: r.announce && outcome != Fenced, Messages: r.messages, Trace: span.Traceparent()}, nil
}

// run is one run of a payment.
type run struct {
	*Runner
	known
	began     time.Time            // of the claim, by the clock of this process
	claimedAt time.Time            // the same moment, by the clock of the database
	leased    time.Time            // when the lease was renewed last, by the clock of this process
	decline   *payprovider.Decline // why a call of this run was declined or refused
	announce  bool                 // the job shows something new
	messages  []job.Message        // of the job that cancels the purchase
}

// now is the present moment by the clock of the database, about.
func (r *run) now() time.Time { return r.claimedAt.Add(time.Since(r.began)) }

// errGoOn says that a move is done and another one follows.
var errGoOn = errors.New("go on")

// leadsToCall are the moves that are not begun when the worker shuts down.
var leadsToCall = map[move]bool{newKey: true, create: true, fetch: true, confirm: true, capture: true, cancel: true, review: true}

// process makes one move after the other until the payment is released, or its end is
// known.
func (r *run) process(ctx context.Context) (Outcome, error) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxMoves*r.settings.CallTimeout)
	defer cancel()
	for range maxMoves {
		m, ending := r.next()
		if ctx.Err() != nil && leadsToCall[m] {
			return r.release(work, 0)
		}
		outcome, err := r.make(work, m, ending)
		if !errors.Is(err, errGoOn) {
			return outcome, err
		}
	}
	return r.unexpectedState(work, "it makes no progress")
}

// make makes a move. It returns errGoOn when another one follows.
func (r *run) make(ctx context.Context, m move, ending payment.Ending) (Outcome, error) {
	switch m {
	case newKey:
		return r.storeKey(ctx)
	case create, fetch, confirm, capture, cancel:
		return r.call(ctx, m)
	case awaitMethod:
		if many, err := payment.HasTooManyDeclines(ctx, r.db, r.p.PurchaseID, r.declinedByBank()); err != nil {
			return "", err
		} else if many { // no other card may come
			return r.giveUp(ctx, payment.Declined)
		}
		return r.forward(ctx, m)
	case show, slow, startCapture, storeCapture:
		return r.forward(ctx, m)
	case giveUp:
		return r.giveUp(ctx, ending)
	case end:
		return r.end(ctx, ending)
	case uncancellable:
		changed := r.p
		changed.Uncancellable = true
		return r.goOn(r.store(ctx, changed, payment.Always, r.settings.Lease, 0))
	case settle:
		return Settle, nil // the claim makes it due again, in case that no transaction settles it
	case wait:
		return r.release(ctx, r.pauseOf(&r.p))
	case review:
		return r.look(ctx)
	case release:
		return Nothing, r.sleep(ctx)
	}
	what := fmt.Sprintf("intent %s in status %q", postgres.ValueOf(r.p.IntentID), r.intent.Status)
	if r.p.PaidOutOfBand() {
		what += ", and it was paid out of band: refund or cancel it at the provider"
	}
	return r.unexpectedState(ctx, what)
}

func (r *run) goOn(err error) (Outcome, error) {
	if err == nil {
		err = errGoOn
	}
	return "", err
}

func (r *run) waits(err error) (Outcome, error) { return Waits, err }

// hit is a failpoint that concerns this payment.
func (r *run) hit(moment string) { hit(r.p.PurchaseID, r.p.PaymentMethod, moment) }

func hit(purchaseID uuid.UUID, method, moment string) {
	failpoint.Hit("payments."+moment, func() []string { return []string{purchaseID.String(), method} })
}

type metrics struct {
	runs       *prometheus.CounterVec // by outcome
	phases     *prometheus.CounterVec // by phase
	faults     *prometheus.CounterVec // by call and kind
	mismatches *prometheus.CounterVec // by call
	unexpected prometheus.Counter
	disputes   *prometheus.CounterVec // by status
	others     prometheus.Counter
	duration   prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_runs_total",
			Help: "Runs of payments by this worker, by outcome: nothing, waits, fenced, finalize."}, []string{"outcome"}),
		phases: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_phases_total",
			Help: "Phases that this worker has stored."}, []string{"phase"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_faults_total",
			Help: "Calls of the provider for payments that failed, by call and by what it means (kind)."}, []string{"call", "kind"}),
		mismatches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_mismatches_total",
			Help: "Answers of the provider with another amount, currency, mode or purchase than ours, by call. Must stay 0."}, []string{"call"}),
		unexpected: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_payment_unexpected_states_total",
			Help: "Looks at payments that wait for an operator, because the provider says what cannot be. Must stay 0."}),
		disputes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_disputes_total",
			Help: "Disputes of charges that have changed, by their status at the provider."}, []string{"status"}),
		others: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_payment_out_of_band_refunds_total",
			Help: "Refunds of our payments that were made at the provider by somebody else, of purchases that are kept here: the books differ."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "triprize_payment_duration_seconds",
			Help: "Time from the reservation to the capture.", Buckets: []float64{.25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 900, 3600}}),
	}
	registry.MustRegister(m.runs, m.phases, m.faults, m.mismatches, m.unexpected, m.disputes, m.others, m.duration)
	telemetry.Expect(m.disputes, "needs_response", "under_review", "won", "lost", "prevented", "warning_needs_response", "warning_under_review", "warning_closed")
	telemetry.Expect(m.runs, Nothing, Waits, Fenced, Settle)
	telemetry.Expect(m.phases, payment.Creating, payment.Confirming, payment.Action, payment.CardDeclined, payment.Processing,
		payment.Capturing, payment.Captured, payment.Expiring, payment.Late, payment.Ended, payment.RefundDue)
	for _, c := range []move{create, fetch, confirm, capture, cancel, review} {
		telemetry.Expect(m.mismatches, c)
		for _, kind := range payprovider.ErrorKinds {
			m.faults.WithLabelValues(string(c), string(kind))
		}
	}
	return m
}
