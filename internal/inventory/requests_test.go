package inventory_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var at = fixture.At

// expectCode fails the test unless err has the code; empty is no error.
func expectCode(t *testing.T, what string, err error, want fault.Code) {
	t.Helper()
	if got := fault.CodeOf(err); got != want {
		t.Errorf("%s: %v; want %q", what, err, want)
	}
}

// expectTaken fails the test unless err names exactly the given positions, by their index in the request.
func expectTaken(t *testing.T, what string, err error, pointers ...string) {
	t.Helper()
	expectCode(t, what, err, fault.PositionTaken)
	var named []string
	for _, f := range fault.From(err).Fields {
		named = append(named, f.Pointer)
	}
	if !slices.Equal(named, pointers) {
		t.Errorf("%s: %v are named as taken, want %v", what, named, pointers)
	}
}

// seller sells, as a worker does.
func seller(db *pgxpool.Pool) *sale.Seller { return fixture.Seller(db) }

// problem returns why a job failed.
func problem(j job.Job) error {
	if j.Problem == nil {
		return nil
	}
	return j.Problem.Err()
}

func placesOf(h inventory.Hold) (places []shape.Position) {
	for _, p := range h.Positions {
		places = append(places, p.Position)
	}
	return places
}

// free returns the positions that are available.
func free(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (places []shape.Position) {
	t.Helper()
	all, err := inventory.All(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.State == inventory.Available {
			places = append(places, p.Position)
		}
	}
	return places
}

func expectCounts(t *testing.T, db *pgxpool.Pool, id uuid.UUID, reserved, sold int) {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	if err != nil || c.Counts.Reserved != reserved || c.Counts.Sold != sold {
		t.Errorf("%d reserved and %d sold, want %d and %d (%v)", c.Counts.Reserved, c.Counts.Sold, reserved, sold, err)
	}
}

func TestChosenPositionsAreHeldTogether(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	made := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(4, 2), at(1, 1), at(3, 3)))
	if got := placesOf(made); !slices.Equal(got, []shape.Position{at(1, 1), at(3, 3), at(4, 2)}) || made.Positions[2].Price != 400 {
		t.Errorf("it keeps %+v", made.Positions)
	}
	if made.State != inventory.HoldActive || made.UserID != "a" || made.ExpiresAt.Sub(made.CreatedAt) != 10*time.Minute {
		t.Errorf("it is %+v", made)
	}
	if stored := fixture.HoldNow(t, db, made.ID); !stored.ExpiresAt.Equal(made.ExpiresAt) || !slices.Equal(placesOf(stored), placesOf(made)) {
		t.Errorf("stored is %+v", stored)
	}
	own, err := inventory.OfUser(t.Context(), db, id, "test", "a")
	if err != nil || len(own) != 3 || own[0].State != inventory.Held || !own[0].ExpiresAt.Equal(made.ExpiresAt) {
		t.Errorf("the board says %+v, %v", own, err)
	}
	expectCounts(t, db, id, 3, 0)
	fixture.Sound(t, db)
}

func TestOfChosenPositionsAllAreHeldOrNoneAndThoseThatAreGoneAreNamed(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(2, 1)))
	fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "b", at(4, 4)))
	_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "c", at(1, 1), at(2, 1), at(3, 1), at(4, 4)))
	expectTaken(t, "one held, one sold", err, "/positions/1", "/positions/3")
	_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "a", at(2, 1)))
	expectTaken(t, "its own", err, "/positions/0")
	expectCounts(t, db, id, 1, 1)
	fixture.Hold(t, service, fixture.HoldRequest(id, "c", at(1, 1), at(3, 1)))
	fixture.Sound(t, db)
}

func TestRandomPositionsComeFromWhereTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 2)))
	if got := placesOf(fixture.Hold(t, service, fixture.HoldAnyRequest(id, "b", 3, 2))); !slices.Equal(got, []shape.Position{at(3, 1), at(3, 3)}) {
		t.Errorf("of layer 3 it keeps %v", got)
	}
	_, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "c", 3, 1))
	expectCode(t, "a layer that is held", err, fault.NoneAvailable)
	rest := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "d", 0, 7))
	if len(rest.Positions) != 7 {
		t.Errorf("anywhere: %v", placesOf(rest))
	}
	_, err = fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "e", 0, 1))
	expectCode(t, "a campaign that is held", err, fault.NoneAvailable)
	expectCounts(t, db, id, 10, 0)
	fixture.Sound(t, db)
}

func TestALayerThatIsSoldIsSoldOut(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "a", at(2, 1), at(2, 2)))
	_, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "b", 2, 1))
	expectCode(t, "the layer is sold", err, fault.SoldOut)
	fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "a", at(3, 1), at(3, 2)))
	_, err = fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "b", 3, 2))
	expectCode(t, "one is left of two", err, fault.NoneAvailable)
	fixture.SellOut(t, db, id)
	_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(1, 1)))
	expectCode(t, "the campaign is sold", err, fault.SoldOut)
	fixture.Sound(t, db)
}

func TestWhatCannotBeHeldIsRefused(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	one := 1
	limited := fixture.Draft(4)
	limited.PurchaseLimit = &one
	id, few := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, limited)
	paused, soon, over, cancelled := fixture.Campaign(t, db, limited), fixture.Campaign(t, db, limited), fixture.Campaign(t, db, limited), fixture.Campaign(t, db, limited)
	for campaignID, change := range map[uuid.UUID]string{
		paused:    `paused_at = clock_timestamp()`,
		soon:      `sale_starts_at = clock_timestamp() + interval '1 h'`,
		over:      `sale_ends_at = clock_timestamp()`,
		cancelled: `state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test'`,
	} {
		servers.Exec(t, db, `UPDATE campaigns SET `+change+` WHERE id = $1`, campaignID)
	}
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxPositionsPerUser = 11 })
	// Those of two positions are over the limit of one as well, but that is not why they are refused.
	for what, c := range map[string]struct {
		request inventory.HoldRequest
		want    fault.Code
	}{
		"an unknown campaign":        {fixture.HoldRequest(uuid.New(), "a", at(1, 1)), fault.NotFound},
		"outside the triangle":       {fixture.HoldRequest(id, "a", at(1, 1), at(5, 1)), fault.InvalidRequest},
		"beyond the layer":           {fixture.HoldRequest(few, "a", at(2, 1), at(2, 3)), fault.InvalidRequest},
		"no such layer":              {fixture.HoldAnyRequest(id, "a", 5, 1), fault.InvalidRequest},
		"more than the layer has":    {fixture.HoldAnyRequest(few, "a", 2, 3), fault.InvalidRequest},
		"more than the triangle has": {fixture.HoldAnyRequest(id, "a", 0, 11), fault.InvalidRequest},
		"paused":                     {fixture.HoldAnyRequest(paused, "a", 0, 2), fault.CampaignPaused},
		"not open yet":               {fixture.HoldAnyRequest(soon, "a", 0, 2), fault.SaleNotOpen},
		"over":                       {fixture.HoldAnyRequest(over, "a", 0, 2), fault.SaleNotOpen},
		"cancelled":                  {fixture.HoldAnyRequest(cancelled, "a", 0, 2), fault.CampaignNotActive},
		"more than the limit":        {fixture.HoldAnyRequest(few, "a", 0, 2), fault.PurchaseLimitExceeded},
	} {
		_, err := fixture.TryHold(t, service, c.request)
		expectCode(t, what, err, c.want)
	}
	all := fixture.HoldAnyRequest(id, "a", 0, 10)
	if made := fixture.Hold(t, service, all); len(made.Positions) != 10 {
		t.Errorf("all there are: %+v", made)
	}
	fixture.Sound(t, db)
}

// A campaign that is no longer on sale may still have holds. Requests and purchases
// do not end them.
func TestHoldsOfACampaignThatIsNotOnSaleAreLeftAlone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
	fixture.EndHold(t, db, h)
	refs := fixture.Accept(t, db, fixture.ChosenRequest(t, id, "b", at(3, 1)), fixture.HeldRequest(t, id, "a", h.ID), fixture.ChosenRequest(t, other, "b", at(3, 1)))
	servers.Exec(t, db, `UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`, id)
	_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 1)))
	expectCode(t, "hold", err, fault.CampaignNotActive)
	if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	for i, want := range []fault.Code{fault.CampaignNotActive, fault.CampaignNotActive, ""} {
		expectCode(t, "buy", problem(fixture.Job(t, db, refs[i].ID)), want)
	}
}
