package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/tracing"
)

// acceptor stores requests as jobs; concurrent requests share a transaction.
type acceptor struct {
	db         *pgxpool.Pool
	requests   *batch.Coalescer[job.Request, job.Done]
	closed     *batch.Coalescer[job.Request, job.Done] // of campaigns that are known to be closed: a crowd there holds up no other
	dispatcher *queue.Dispatcher
	health     *telemetry.Health
	accepted   *prometheus.CounterVec
	refused    *prometheus.CounterVec
	replayed   prometheus.Counter
	draws      *drawing.Triggers
}

func newAcceptor(db *pgxpool.Pool, settings config.Accept, dispatcher *queue.Dispatcher, health *telemetry.Health, logger *slog.Logger, registry prometheus.Registerer) *acceptor {
	a := &acceptor{
		db: db, health: health, dispatcher: dispatcher, draws: drawing.NewTriggers(registry, logger),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_jobs_accepted_total", Help: "Jobs accepted by this process, by kind."}, []string{"kind"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_purchases_refused_total",
			Help: "Purchases refused without a job, because their campaign never sells again, by code."}, []string{"code"}),
		replayed: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_requests_replayed_total", Help: "Requests answered with the job of an earlier request with the same key."}),
	}
	registry.MustRegister(a.accepted, a.refused, a.replayed)
	telemetry.Expect(a.accepted, job.KindPurchase, job.KindCancellation, job.KindDraw, job.KindCampaignCancellation)
	telemetry.Expect(a.refused, fault.SoldOut, fault.CampaignNotActive, fault.SaleNotOpen)
	options := batch.Options{
		Size: job.MaxJobs, Linger: cmp.Or(settings.BatchLinger, time.Millisecond), InFlight: mostBatches, OrderTimeout: lateBatch,
		Pending: acceptPending, Timeout: settings.Timeout, Drain: acceptDrain, Whole: postgres.IsTransient,
	}
	a.requests, a.closed = batch.New(options, a.flush), batch.New(options, a.flush)
	return a
}

// One batch at a time, so that most requests share it; but one that hangs, on a dead connection
// or behind a lock on somebody's key, holds up the others for a moment only.
const (
	mostBatches = 4
	lateBatch   = 100 * time.Millisecond

	acceptPending = 8192             // requests waiting for a batch; beyond it the answer is 503 overloaded
	acceptTimeout = 10 * time.Second // one batch, from first statement to commit
	acceptDrain   = 2 * time.Second  // how long waiting requests are still stored at shutdown, after their connections were closed
)

// flush commits requests as jobs. The work after the commit runs in the background,
// so that no request waits for Redis.
func (a *acceptor) flush(ctx context.Context, requests []job.Request) (_ []job.Done, err error) {
	ctx = postgres.As(ctx, postgres.TxAccept)
	ctx, spans := tracing.Batch(ctx, "accept", len(requests), job.TracesOf(requests))
	defer func() { spans.End(err) }()
	accepted, messages, err := job.Accept(ctx, a.db, requests)
	if postgres.NothingSent(err) { // the connection was dead already: try a new one
		accepted, messages, err = job.Accept(ctx, a.db, requests)
	}
	if mayWrite := func(r job.Request) bool { return r.Refusal == nil }; (err == nil || postgres.IsTransient(err)) && slices.ContainsFunc(requests, mayWrite) {
		a.health.Wrote(err)
	}
	if err != nil {
		return nil, err
	}
	failpoint.Hit("accept.committed", nil)
	a.dispatcher.Dispatch(job.Tasks(messages)...)
	var refused []uuid.UUID
	for i, one := range accepted {
		switch {
		case errors.Is(one.Err, job.ErrClosed):
			refused = append(refused, requests[i].CampaignID)
		case one.Err != nil:
		case one.Replayed:
			a.replayed.Inc()
		default:
			a.accepted.WithLabelValues(string(one.Job.Kind)).Inc()
			if one.Job.Kind == job.KindDraw {
				a.draws.Note(job.Message{By: job.ByOperator, From: one.Job.Origin, Jobs: []job.Ref{{ID: one.Job.ID, CampaignID: *one.Job.CampaignID}}})
			}
		}
	}
	if len(refused) > 0 {
		a.explain(ctx, requests, accepted, refused)
	}
	return accepted, nil
}

// errUndecided refuses a purchase of a campaign that was closed a moment ago, and is not now; and
// what has shared the key of such a purchase in a batch.
var errUndecided = fault.New(fault.Unavailable, "the campaign has just changed, or another request with this key arrived at the same time; retry with the same Idempotency-Key")

func (a *acceptor) explain(ctx context.Context, requests []job.Request, accepted []job.Done, campaigns []uuid.UUID) {
	slices.SortFunc(campaigns, uuidv7.Compare)
	campaigns = slices.Compact(campaigns)
	statuses := make(map[uuid.UUID]*campaign.Status, len(campaigns))
	var b pgx.Batch
	campaign.QueueStatuses(&b, campaigns, statuses)
	err := a.db.SendBatch(ctx, &b).Close()
	for i, r := range requests {
		if !errors.Is(accepted[i].Err, job.ErrClosed) {
			continue
		}
		accepted[i].Err = errUndecided
		if err != nil {
			accepted[i].Err = fmt.Errorf("acceptor: why campaign %s is closed: %w", r.CampaignID, err)
		} else if status := statuses[r.CampaignID]; status != nil && status.State.Closed() && r.Kind == job.KindPurchase {
			accepted[i].Err = status.CheckOnSale()
			a.refused.WithLabelValues(string(fault.CodeOf(accepted[i].Err))).Inc()
		}
	}
}

func (a *acceptor) close() {
	a.requests.Close()
	a.closed.Close()
}
