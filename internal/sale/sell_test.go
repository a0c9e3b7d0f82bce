package sale_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// walletWait is how long cancellations of these tests wait for a wallet.
const walletWait = servers.Patience

func TestOneBatchSettlesEveryKindOfOutcome(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft := fixture.Draft(4)
	limit := 3
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	refs := fixture.Accept(t, db,
		fixture.PurchaseRequest(t, id, "a", 4, 1),
		fixture.PurchaseRequest(t, id, "a", 2, 2),
		fixture.PurchaseRequest(t, id, "a", 0, 1), // over the limit of a
		fixture.PurchaseRequest(t, id, "b", 2, 1), // layer 2 is sold by then
		fixture.PurchaseRequest(t, id, "b", 9, 1), // no such layer
		fixture.PurchaseRequest(t, id, "b", 3, 3),
	)
	report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked)
	if err != nil {
		t.Fatal(err)
	}
	want := []fault.Code{"", "", fault.PurchaseLimitExceeded, fault.SoldOut, fault.InvalidRequest, ""}
	for i, ref := range refs {
		j := fixture.Job(t, db, ref.ID)
		var got fault.Code
		if j.Problem != nil {
			got = j.Problem.Code
		}
		if !j.State.Final() || got != want[i] {
			t.Errorf("order %d: %s, %q; want %q", i, j.State, got, want[i])
		}
	}
	if len(report.Finalized) != len(refs) || len(report.Busy) != 0 {
		t.Errorf("report: %+v", report)
	}
	fixture.Sound(t, db)
}

func TestWhatCanNeverBeIsRefusedForGood(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	requests := map[string]job.Request{
		"more than the layer has":    fixture.PurchaseRequest(t, id, "a", 1, 2),
		"more than the triangle has": fixture.PurchaseRequest(t, id, "a", 0, 11),
	}
	for name, request := range requests {
		refs := fixture.Accept(t, db, request)
		if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked); err != nil {
			t.Fatal(err)
		}
		p := fixture.Job(t, db, refs[0].ID).Problem
		if p == nil || p.Code != fault.InvalidRequest || len(p.Fields) != 1 || p.Fields[0].Pointer != "/selection/quantity" || !strings.Contains(p.Fields[0].Detail, "in all") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	all := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "b", 4, 4), fixture.PurchaseRequest(t, id, "b", 0, 6))
	if report, err := fixture.Seller(db).Sell(t.Context(), all, sale.SkipLocked); err != nil || report.Sold != 10 {
		t.Errorf("exactly what there is: %+v, %v", report, err)
	}
	fixture.Sound(t, db)
}

func TestAResultNamesThePositionsAndWhatTheyCost(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 3, 2))
	if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked); err != nil {
		t.Fatal(err)
	}
	var result sale.Result
	if err := json.Unmarshal(fixture.Job(t, db, refs[0].ID).Result, &result); err != nil {
		t.Fatal(err)
	}
	if len(result.Positions) != 2 || result.Positions[0].Layer != 3 || result.Amount != 600 || result.Currency != "JPY" {
		t.Errorf("got %+v", result)
	}
}

func TestSellingTheLastPositionFreezesTheCampaign(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	if ref := fixture.Sell(t, db, id, 9); ref.ID != (job.Ref{}).ID {
		t.Fatal("a draw was asked for with one position left")
	}
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "late", 0, 1))
	drawJob := fixture.Sell(t, db, id, 1)
	c, err := campaign.Get(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	if c.State != campaign.Drawing || c.Counts.Sold != 10 {
		t.Errorf("the campaign is %s with %d sold", c.State, c.Counts.Sold)
	}
	if j := fixture.Job(t, db, drawJob.ID); j.Kind != job.KindDraw || j.Client != job.System || j.Key != "lottery-draw-"+id.String() {
		t.Errorf("the draw job is %+v", j)
	}
	if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked); err != nil {
		t.Fatal(err)
	}
	if j := fixture.Job(t, db, refs[0].ID); j.Problem == nil || j.Problem.Code != fault.SoldOut {
		t.Errorf("a late buyer got %+v", j.Problem)
	}
	fixture.Sound(t, db)
}

func TestRandomPositionsComeInAnUnpredictableOrder(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	first := func() (positions []int) {
		id := fixture.Campaign(t, db, fixture.Draft(20))
		var requests []job.Request
		for range 12 {
			requests = append(requests, fixture.PurchaseRequest(t, id, "a", 0, 1))
		}
		for _, j := range fixture.Finalize(t, db, requests...) {
			got := bought(t, j)
			positions = append(positions, got[0].Layer*100+got[0].Column)
		}
		return positions
	}
	if a, b := first(), first(); slices.Equal(a, b) || slices.IsSorted(a) {
		t.Errorf("twelve sales of two campaigns: %v and %v", a, b)
	}
}
