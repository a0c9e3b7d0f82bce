package httpapi

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// closedSales refuses purchases of campaigns that never sell again, without a job. Postgres
// decides on each of them; concurrent requests share a look.
type closedSales struct {
	db      *pgxpool.Pool
	looks   *batch.Coalescer[job.Request, closedAnswer]
	refused *prometheus.CounterVec
}

// closedAnswer is what Postgres says about a purchase.
type closedAnswer struct {
	refusal error        // nil: the campaign may sell
	earlier job.Accepted // of an earlier request with the key, if hasJob
	hasJob  bool
}

func newClosedSales(db *pgxpool.Pool, settings config.Accept, registry prometheus.Registerer) *closedSales {
	s := &closedSales{db: db, refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_purchases_refused_total",
		Help: "Purchases refused without a job, because their campaign never sells again, by code."}, []string{"code"})}
	registry.MustRegister(s.refused)
	telemetry.Expect(s.refused, fault.SoldOut, fault.CampaignNotActive, fault.SaleNotOpen)
	s.looks = batch.New(batch.Options{Size: outbox.MaxJobs, InFlight: mostBatches, Late: lateBatch, Pending: acceptPending,
		Timeout: settings.Timeout, Whole: postgres.IsTransient}, s.look)
	return s
}

// look reads the campaigns first, and then the keys. A key that is free then makes no purchase:
// a job that comes later finds its campaign closed.
func (s *closedSales) look(ctx context.Context, requests []job.Request) ([]closedAnswer, error) {
	campaigns := make([]uuid.UUID, 0, 1)
	for _, r := range requests {
		if !slices.Contains(campaigns, r.CampaignID) {
			campaigns = append(campaigns, r.CampaignID)
		}
	}
	statuses := make(map[uuid.UUID]*campaign.Status, len(campaigns))
	var b pgx.Batch
	campaign.QueueStatuses(&b, campaigns, statuses)
	if err := s.db.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("closedSales: %w", err)
	}
	earlier, hasJob, err := job.OfKeys(ctx, s.db, requests)
	if err != nil {
		return nil, err
	}
	answers := make([]closedAnswer, len(requests))
	for i, r := range requests {
		answers[i] = closedAnswer{earlier: earlier[i], hasJob: hasJob[i]}
		if status := statuses[r.CampaignID]; status != nil && status.State.Closed() && r.Kind == job.KindPurchase { // others may share a key with one
			answers[i].refusal = status.CheckOnSale()
		}
	}
	return answers, nil
}

// isClosed reports whether this process knows that a purchase is of a campaign that never sells
// again.
func (s *intake) isClosed(ctx context.Context, request job.Request) bool {
	if request.Kind != job.KindPurchase {
		return false
	}
	known, err := s.facts.Of(ctx, s.db, request.CampaignID)
	return err == nil && known.Closed
}

// answerClosed answers a purchase of a campaign that is said to be closed: with the job of its
// key, or with why nothing is sold. isAnswered is false when Postgres says that the campaign
// sells: it has lost the end, in a failover or a restore.
func (s *intake) answerClosed(ctx context.Context, request job.Request, wait response.Wait) (_ response.Job, isAnswered bool, err error) {
	found, err := s.closed.looks.Do(ctx, request)
	if err != nil {
		return response.Job{}, false, err
	}
	if s.isClosed(ctx, request) != (found.refusal != nil) {
		if _, err := s.facts.Read(ctx, s.db, request.CampaignID); err != nil { // the next purchase knows it
			return response.Job{}, false, err
		}
	}
	switch {
	case found.hasJob:
		s.acceptor.replayed.Inc()
		answer, err := s.answerEarlier(ctx, found.earlier, wait)
		return answer, true, err
	case found.refusal != nil:
		s.closed.refused.WithLabelValues(string(fault.CodeOf(found.refusal))).Inc()
	}
	return response.Job{}, found.refusal != nil, found.refusal
}

// answerEarlier answers a request with the job that its key has in Postgres.
func (s *intake) answerEarlier(ctx context.Context, earlier job.Accepted, wait response.Wait) (response.Job, error) {
	if earlier.Reused {
		return response.Job{}, reused(earlier.Job)
	}
	c := call.Of(ctx)
	c.EndShare()
	return s.answerJob(ctx, c, earlier.Job, wait, nil, true)
}
