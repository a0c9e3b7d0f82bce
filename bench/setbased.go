package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
)

const (
	saleBatch      = 256 // a worker's batch
	acceptedAtOnce = 16 * saleBatch
	mostPerSecond  = 15_000 // a faster machine ends the measurement early
)

// runSetBased measures sale.Seller.Sell alone, on one hot campaign: one goroutine, full
// batches, of jobs that were made before. It is what the whole system could do if
// everything around the sale cost nothing.
func runSetBased(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot, func(sys *system) (r result, err error) {
		seller := sale.NewSeller(sys.pool, sys.settings.Retention.Jobs, sale.Reservations{})
		var jobs []job.Ref
		for len(jobs) < int((warmUp(measured)+measured).Seconds()*mostPerSecond) {
			made, err := acceptPurchases(ctx, sys.pool, sys.campaigns[0], acceptedAtOnce)
			if err != nil {
				return r, err
			}
			jobs = append(jobs, made...)
		}
		w := newWindow(sys.meter())
		r, err = w.repeat(ctx, measured, 1, func(int) caller {
			return func() (bool, error) {
				if len(jobs) == 0 {
					return false, errors.New("the machine has sold everything")
				}
				report, err := seller.Sell(ctx, jobs[:saleBatch], sale.WaitForCampaign)
				if err == nil && report.Sold != saleBatch {
					err = fmt.Errorf("a batch of %d sold %d", saleBatch, report.Sold)
				}
				jobs = jobs[saleBatch:]
				return true, err
			}
		})
		sold := r.figures[rate] * w.elapsed.Seconds() * saleBatch
		r.note(rate, divide(sold, w.elapsed.Seconds()))
		r.noteUsage(w, int(math.Round(sold)))
		r.wrong = append(r.wrong, sys.violations(ctx)...)
		return r, err
	})
}

// acceptPurchases makes purchase jobs, each for another user, as the api does.
func acceptPurchases(ctx context.Context, db postgres.DB, campaignID uuid.UUID, n int) ([]job.Ref, error) {
	requests, refs := make([]job.Request, n), make([]job.Ref, n)
	for i := range requests {
		id := uuidv7.New()
		order := sale.Order{UserID: "user-" + uuid.NewString(), Selection: inventory.Selection{Quantity: 1}, Payment: sale.Payment{Method: purchase.External}}
		payload, err := json.Marshal(order)
		if err != nil {
			return nil, err
		}
		requests[i] = job.Request{ID: id, Client: "bench", Key: uuid.NewString(), Kind: job.KindPurchase, CampaignID: campaignID,
			UserID: order.UserID, Payload: payload, Retention: time.Hour}
		refs[i] = job.Ref{ID: id, CampaignID: campaignID}
	}
	_, _, err := job.Accept(ctx, db, requests)
	return refs, err
}
