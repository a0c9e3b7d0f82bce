package main

import (
	"context"
	"encoding/json"
	"errors"
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
	saleBatch      = 256 // the default of worker.batch_size
	acceptedAtOnce = 16 * saleBatch
)

// runSetBased measures sale.Seller.Sell alone, on one hot campaign: one goroutine, full
// batches, of jobs that were made before. It is what the whole system could do if
// everything around the sale cost nothing.
func runSetBased(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot(measured), func(sys *system) (result, error) {
		return sys.withPool(ctx, func(pool *pgxpool.Pool) (result, error) { return sys.sellBatches(ctx, pool, measured) })
	})
}

func (sys *system) sellBatches(ctx context.Context, pool *pgxpool.Pool, measured time.Duration) (r result, err error) {
	seller := sale.NewSeller(pool, sys.settings.Retention.Jobs, sale.Reservations{})

	var jobs []job.Ref
	for len(jobs)+acceptedAtOnce <= needed(measured) {
		made, err := acceptPurchases(ctx, pool, sys.campaigns[0], acceptedAtOnce)
		if err != nil {
			return r, err
		}
		jobs = append(jobs, made...)
	}
	w := newWindow(sys.meter())
	var took []time.Duration
	sold := 0
	var failed error
	err = w.measure(ctx, measured, func() {
		for !w.isOver() && len(jobs) >= saleBatch && failed == nil {
			start := time.Now()
			var report sale.Report
			if report, failed = seller.Sell(ctx, jobs[:saleBatch], sale.WaitForCampaign); failed == nil && report.Sold != saleBatch {
				failed = fmt.Errorf("a batch of %d sold %d", saleBatch, report.Sold)
			}
			jobs, sold = jobs[saleBatch:], sold+report.Sold
			if w.isOpen() {
				took = append(took, time.Since(start))
			}
		}
		w.end() // for a machine that has sold them all
	})
	if err = errors.Join(err, failed); err != nil {
		return r, err
	}
	r = newResult(len(took)*saleBatch, w.elapsed, took)
	r.noteUsage(w, len(took)*saleBatch)
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
