package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
	"triprize/internal/store/purchase"
)

const (
	saleBatch     = 256            // the default of worker.batch_size
	acceptedAhead = 16 * saleBatch // jobs made at a time; that time is not measured
)

// runSetBased measures sale.Seller.Sell alone, on one hot campaign: one goroutine, full
// batches, of jobs whose making is not measured. It is what the whole system could do if
// everything around the sale cost nothing.
func runSetBased(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot(measured), func(sys *system) (result, error) {
		return sys.withPool(ctx, func(pool *pgxpool.Pool) (result, error) { return sys.sellBatches(ctx, pool, measured) })
	})
}

func (sys *system) sellBatches(ctx context.Context, pool *pgxpool.Pool, measured time.Duration) (r result, err error) {
	seller := sale.NewSeller(pool, sys.settings.Retention.Jobs, sale.Reservations{})

	var jobs []job.Ref
	sell := func() (sold int, took time.Duration, err error) {
		if len(jobs) == 0 {
			if jobs, err = acceptPurchases(ctx, pool, sys.campaigns[0], acceptedAhead); err != nil {
				return 0, 0, err
			}
		}
		start := time.Now()
		report, err := seller.Sell(ctx, jobs[:saleBatch], sale.WaitForCampaign)
		took = time.Since(start)
		jobs = jobs[saleBatch:]
		if err == nil && report.Sold != saleBatch {
			err = fmt.Errorf("a batch of %d sold %d", saleBatch, report.Sold)
		}
		return report.Sold, took, err
	}
	var sold, soldInTime int
	var warm, clock time.Duration
	var took []time.Duration
	capacity := needed(measured)
	for clock < measured && sold+saleBatch < capacity {
		n, one, err := sell()
		if err != nil {
			return r, err
		}
		sold += n
		if warm < warmUp(measured) {
			warm += one
			continue
		}
		clock, soldInTime, took = clock+one, soldInTime+n, append(took, one)
	}
	r = newResult(soldInTime, clock, took)
	r.note("batch", saleBatch)
	r.wrong, err = sys.verify(ctx, expectation{bought: sold, notFinal: len(jobs)})
	return r, err
}

// acceptPurchases makes purchase jobs, each for another user, as the api does.
func acceptPurchases(ctx context.Context, db postgres.DB, campaignID uuid.UUID, n int) ([]job.Ref, error) {
	requests, refs := make([]job.Request, n), make([]job.Ref, n)
	for i := range requests {
		id := uuidv7.New()
		order := sale.Order{UserID: "user-" + uuid.NewString(), Selection: sale.Random(0, 1), Payment: sale.Payment{Method: purchase.External}}
		payload, err := json.Marshal(order)
		if err != nil {
			return nil, err
		}
		requests[i] = job.Request{ID: id, Client: "bench", Key: uuid.NewString(), Kind: job.KindPurchase, CampaignID: campaignID,
			UserID: order.UserID, Payload: payload, Keep: time.Hour}
		refs[i] = job.Ref{ID: id, CampaignID: campaignID}
	}
	_, _, err := outbox.Accept(ctx, db, requests)
	return refs, err
}
