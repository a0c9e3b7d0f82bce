package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/tracing"
)

// Intake stores requests as jobs; concurrent requests share a transaction.
type Intake struct {
	IntakeOptions

	timeout      time.Duration                           // of a request, from its batch on
	open, closed *batch.Coalescer[application, Accepted] // closed: of campaigns that are known to be closed: a crowd there holds up no other
	accepted     *prometheus.CounterVec
	refused      *prometheus.CounterVec
	replayed     prometheus.Counter
}

// IntakeOptions are what an Intake uses. What concerns topics above jobs is passed in.
type IntakeOptions struct {
	DB         *pgxpool.Pool
	Dispatcher *queue.Dispatcher
	Jobs       *Jobs
	Waits      *QueueWaits
	Health     *telemetry.Health
	Triggered  func(messages ...Message)                            // notes messages of draws
	Closed     func(ctx context.Context, campaignID uuid.UUID) bool // reports whether this process knows that a campaign never sells again
	Reread     func(ctx context.Context, campaignID uuid.UUID)      // lets it know better
	// Explain says why campaigns never sell again; one that may has no entry.
	Explain func(ctx context.Context, db postgres.DB, campaigns []uuid.UUID) (map[uuid.UUID]error, error)
}

// One batch at a time, so that most requests share it; but one that hangs, on a dead connection
// or behind a lock on somebody's key, holds up the others for a moment only.
const (
	maxBatches   = 4
	overdueBatch = 100 * time.Millisecond
	// BusyInterval is between the starts of two batches of a crowd, which a half-loaded machine would otherwise begin
	// as fast as it can, each for a few requests.
	BusyInterval = 10 * time.Millisecond

	// AcceptPending is how many requests wait for a batch; beyond it the answer is 503 overloaded.
	AcceptPending = 8192
	// AcceptTimeout is the default of one batch, from first statement to commit.
	AcceptTimeout = 10 * time.Second
	acceptDrain   = 2 * time.Second // how long waiting requests are still stored at shutdown, after their connections were closed
)

// NewIntake returns an Intake. Close it.
func NewIntake(settings config.Accept, o IntakeOptions, registry prometheus.Registerer) *Intake {
	in := &Intake{
		IntakeOptions: o, timeout: cmp.Or(settings.Timeout, AcceptTimeout),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_jobs_accepted_total", Help: "Jobs accepted by this process, by kind."}, []string{"kind"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_purchases_refused_total",
			Help: "Purchases refused without a job, because their campaign never sells again, by code."}, []string{"code"}),
		replayed: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_requests_replayed_total", Help: "Requests answered with the job of an earlier request with the same key."}),
	}
	registry.MustRegister(in.accepted, in.refused, in.replayed)
	telemetry.Expect(in.accepted, KindPurchase, KindCancellation, KindDraw, KindCampaignCancellation, KindErasure)
	telemetry.Expect(in.refused, fault.SoldOut, fault.CampaignNotActive, fault.SaleNotOpen)
	options := batch.Options{
		Size: MaxJobs, Linger: cmp.Or(settings.BatchLinger, time.Millisecond), BusyInterval: BusyInterval, InFlight: maxBatches, OrderTimeout: overdueBatch,
		Pending: AcceptPending, Timeout: in.timeout, Drain: acceptDrain, Whole: postgres.IsTransient,
	}
	in.open, in.closed = batch.New(options, in.flush), batch.New(options, in.flush)
	return in
}

// Close stores the requests that wait, and ends.
func (in *Intake) Close() {
	in.open.Close()
	in.closed.Close()
}

// Replayed counts a request that was answered with the job of an earlier one.
func (in *Intake) Replayed() { in.replayed.Inc() }

// Asked is what goes with a request.
type Asked struct {
	Also  []Kind // the job has to wait in the queues of these kinds, too
	Waits bool   // the caller will wait for the job
	// Bound waits until the sender may have one more unfinished job; end ends its count.
	Bound func(ctx context.Context, job uuid.UUID) (end func(), err error)
}

// application is a request on its way to a job.
type application struct {
	Request

	refusal error // it makes no job
	closed  bool  // the process knows that its campaign never sells again
	waiter  *Waiter
	end     func()
}

// step decides about a request: it may refuse it in the application, or end it by an error.
type step func(in *Intake, ctx context.Context, a *application, asked Asked) error

// steps are what a request passes before its batch, in this order. Purchases of campaigns that are known to be closed
// have batches of their own. With a refusal a batch only looks whether the key has a job.
var steps = []step{
	func(in *Intake, ctx context.Context, a *application, _ Asked) error {
		a.closed = a.Kind == KindPurchase && in.Closed(ctx, a.CampaignID)
		return nil
	},
	func(in *Intake, _ context.Context, a *application, asked Asked) error {
		if !a.closed {
			a.refusal = in.Waits.Admit(append([]Kind{a.Kind}, asked.Also...)...)
		}
		return nil
	},
	func(in *Intake, _ context.Context, a *application, asked Asked) error {
		if a.makesJob() && asked.Waits { // registered before the job exists, so that its end cannot be missed
			a.waiter = in.Jobs.Waiter(a.ID)
		}
		return nil
	},
	func(_ *Intake, ctx context.Context, a *application, asked Asked) (err error) {
		if a.makesJob() {
			a.end, err = asked.Bound(ctx, a.ID)
		}
		return err
	},
}

func (a *application) makesJob() bool { return !a.closed && a.refusal == nil }

// drop ends what the steps have begun.
func (a *application) drop() {
	if a.waiter != nil {
		a.waiter.Stop()
	}
	if a.end != nil {
		a.end()
	}
}

// Accept returns the job of a request: a new one, or that of an earlier request with its key. Without an error it
// returns a waiter of a new job, if the caller waits; it must be stopped.
func (in *Intake) Accept(ctx context.Context, r Request, asked Asked) (Accepted, *Waiter, error) {
	if postgres.Outer(ctx) != nil {
		made, err := in.acceptIn(ctx, r)
		return made, nil, err
	}
	a := application{Request: r}
	for _, pass := range steps {
		if err := pass(in, ctx, &a, asked); err != nil {
			a.drop()
			return Accepted{}, nil, err
		}
	}
	into := in.open
	if a.closed {
		into = in.closed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), in.timeout) // its turn may have taken long to come
	defer cancel()
	made, err := into.Do(ctx, a)
	wasClosed := made.Err != nil && a.refusal == nil
	if err == nil && !made.Replayed && a.closed != wasClosed { // this process was wrong
		in.Reread(ctx, r.CampaignID) // the next purchase knows it
	}
	if err == nil {
		err = made.Err
	}
	if err != nil || made.Replayed {
		a.drop()
		a.waiter = nil
	}
	if err != nil && r.Kind == KindPurchase && (fault.CodeOf(err) == fault.Overloaded || errors.Is(err, batch.ErrFull)) {
		in.Health.Refused()
	}
	return made, a.waiter, err
}

// acceptIn makes the job of a request in the transaction that ctx is part of. Nobody waits for it, and it has no batch.
func (in *Intake) acceptIn(ctx context.Context, r Request) (made Accepted, err error) {
	err = postgres.InTx(ctx, in.DB, func(tx pgx.Tx) error {
		done, messages, err := Accept(ctx, tx, []Request{r})
		if err != nil {
			return err
		}
		made = done[0]
		postgres.AfterCommit(ctx, func() { in.follow([]Request{r}, done, messages) })
		return made.Err
	})
	return made, err
}

// flush commits requests as jobs. The work after the commit runs in the background,
// so that no request waits for Redis.
func (in *Intake) flush(ctx context.Context, all []application) (_ []Accepted, err error) {
	requests, refusals := make([]Request, len(all)), make([]error, len(all))
	for i, a := range all {
		requests[i], refusals[i] = a.Request, a.refusal
	}
	ctx = postgres.As(ctx, postgres.TxAccept)
	ctx, spans := tracing.Batch(ctx, "accept", len(requests), TracesOf(requests))
	defer func() { spans.End(err) }()
	done, messages, err := accept(ctx, in.DB, requests, refusals)
	if postgres.NothingSent(err) { // the connection was dead already: try a new one
		done, messages, err = accept(ctx, in.DB, requests, refusals)
	}
	if (err == nil || postgres.IsTransient(err)) && slices.Contains(refusals, nil) {
		in.Health.Wrote(err)
	}
	if err != nil {
		return nil, err
	}
	failpoint.Hit("accept.committed", nil)
	if closed := in.follow(requests, done, messages); len(closed) > 0 {
		in.explain(ctx, requests, done, closed)
	}
	return done, nil
}

// follow does what follows a commit, and returns the campaigns that were found closed.
func (in *Intake) follow(requests []Request, done []Accepted, messages []Message) (closed []uuid.UUID) {
	in.Dispatcher.Dispatch(Tasks(messages)...)
	for i, one := range done {
		switch {
		case errors.Is(one.Err, ErrClosed):
			closed = append(closed, requests[i].CampaignID)
		case one.Err != nil:
		case one.Replayed:
			in.replayed.Inc()
		default:
			in.accepted.WithLabelValues(string(one.Job.Kind)).Inc()
			if one.Job.Kind == KindDraw {
				in.Triggered(Message{By: ByOperator, From: one.Job.Origin, Jobs: []Ref{{ID: one.Job.ID, CampaignID: *one.Job.CampaignID}}})
			}
		}
	}
	return closed
}

// errUndecided refuses a purchase of a campaign that was closed a moment ago, and is not now; and
// what has shared the key of such a purchase in a batch.
var errUndecided = fault.New(fault.Unavailable, "the campaign has just changed, or another request with this key arrived at the same time; retry with the same Idempotency-Key")

func (in *Intake) explain(ctx context.Context, requests []Request, done []Accepted, campaigns []uuid.UUID) {
	slices.SortFunc(campaigns, uuidv7.Compare)
	reasons, err := in.Explain(ctx, in.DB, slices.Compact(campaigns))
	for i, r := range requests {
		if !errors.Is(done[i].Err, ErrClosed) {
			continue
		}
		done[i].Err = errUndecided
		if err != nil {
			done[i].Err = fmt.Errorf("job.Intake: why campaign %s is closed: %w", r.CampaignID, err)
		} else if why := reasons[r.CampaignID]; why != nil && r.Kind == KindPurchase {
			done[i].Err = why
			in.refused.WithLabelValues(string(fault.CodeOf(why))).Inc()
		}
	}
}
