package sale_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/stripe"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Forty cards at once in four campaigns: no more are tried than may be declined. Those of another
// client's user of the same name are its own.
func TestCardsThatAreBeingTriedCountInAllCampaigns(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	seller := sale.NewSeller(db, time.Hour, sale.Reservations{For: time.Hour, Takes: stripe.Takes})
	tried, refused := 0, 0
	var campaigns []uuid.UUID
	for range 4 {
		id := fixture.Campaign(t, db, fixture.Draft(8))
		campaigns = append(campaigns, id)
		var requests []job.Request
		for range 10 {
			requests = append(requests, fixture.CardRequest(t, id, "mallory", 0, 1))
		}
		refs := fixture.Accept(t, db, requests...)
		if report, err := seller.Sell(t.Context(), refs, sale.WaitForCampaign); err != nil || len(report.Busy) > 0 {
			t.Fatal(report, err)
		}
		for _, ref := range refs {
			switch j := fixture.Job(t, db, ref.ID); {
			case j.Problem == nil:
				tried++
			case j.Problem.Code != fault.DeclineLimitExceeded || !j.Problem.RetryAt.After(time.Now()):
				t.Errorf("refused with %+v", j.Problem)
			default:
				refused++
			}
		}
	}
	if tried != payment.MostDeclines || refused != 40-payment.MostDeclines {
		t.Errorf("%d cards are being tried, %d were refused; want %d and %d", tried, refused, payment.MostDeclines, 40-payment.MostDeclines)
	}
	another := fixture.CardRequest(t, campaigns[0], "mallory", 0, 1)
	another.Client = "kiosk"
	ref := fixture.Accept(t, db, another)[0]
	if _, err := seller.Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign); err != nil || fixture.Job(t, db, ref.ID).Problem != nil {
		t.Errorf("another client's user: %+v, %v", fixture.Job(t, db, ref.ID).Problem, err)
	}
}

// While one transaction counts the cards of a buyer, another campaign's leaves its orders by card for
// later, and waits for nobody.
func TestCardsOfABuyerAreCountedByOneTransactionAtATime(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(8))
	refs := fixture.Accept(t, db, fixture.CardRequest(t, id, "mallory", 0, 1), fixture.CardRequest(t, id, "alice", 0, 1))
	counting, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = counting.Rollback(context.Background()) }()
	var b pgx.Batch
	payment.QueueCards(&b, []payment.Buyer{{Client: "test", ID: "mallory"}}, uuid.Nil, true, nil, nil)
	if err := counting.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	seller := sale.NewSeller(db, time.Hour, sale.Reservations{For: time.Hour, Takes: stripe.Takes})
	report, err := seller.Sell(t.Context(), refs, sale.WaitForCampaign)
	if err != nil || len(report.Busy) != 1 || report.Busy[0] != refs[0] || len(report.Payments) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	if err := counting.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report, err = seller.Sell(t.Context(), refs, sale.WaitForCampaign); err != nil || len(report.Busy) != 0 || len(report.Payments) != 1 {
		t.Fatalf("later: %+v, %v", report, err)
	}
}
