package sale_test

import (
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// The log can follow a sale from the request to the draw: outcomes have the requests of their
// jobs, and the draw has that of the purchase that sold the last position.
func TestTheDrawComesFromTheRequestThatSoldTheLastPosition(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	requests := []job.Request{fixture.PurchaseRequest(t, id, "a", 0, 4), fixture.PurchaseRequest(t, id, "b", 0, 6), fixture.PurchaseRequest(t, id, "c", 0, 1)}
	for i, name := range []string{"first", "last", "late"} {
		requests[i].Origin = job.Origin{RequestID: name, Traceparent: "trace of " + name}
	}
	refs := fixture.Accept(t, db, requests...)
	report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked)
	if err != nil || len(report.Messages) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, o := range report.Finalized {
		of := o.Job
		var r job.Request
		for _, one := range requests {
			if one.ID == o.ID {
				r = one
			}
		}
		isSold := o.Problem == nil
		if of.Origin != r.Origin || of.Kind != job.KindPurchase || of.CampaignID != id || of.Attempts != 1 || of.Took <= 0 || isSold != (o.PurchaseID != uuid.Nil) {
			t.Errorf("%s: %+v", r.RequestID, o)
		}
		if !isSold && o.Problem.Code != fault.SoldOut {
			t.Errorf("%s: %v", r.RequestID, o.Problem)
		}
	}
	drawn, err := job.Get(t.Context(), db, report.Messages[0].Jobs[0].ID)
	if err != nil || drawn.Origin != requests[1].Origin {
		t.Errorf("the draw comes from %+v, %v", drawn.Origin, err)
	}
}
