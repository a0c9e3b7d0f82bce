//go:build soak

package e2e

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/inventory"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// The end of a sale comes in the middle of a crowd. Nobody is sold anything after it, what
// was sold is drawn once, and every buyer knows where it is.
func TestACrowdAtTheEndOfASaleIsDrawnOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1})
	settings, clock := servers.NewClock(t, s.Settings)
	here := "TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL
	s.RunWorker(here)
	s.RunWorker(here)
	s.RunScheduler(here, "TRIPRIZE_SWEEPS_ENDED_SALES_INTERVAL=500ms")
	const long = 24 * time.Hour
	body := fleet.CampaignBody(12)
	body["sale_ends_at"], body["policies"] = time.Now().Add(long).UTC().Format(time.RFC3339), map[string]any{"unsold": "draw"}
	created := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns", map[string]string{"Idempotency-Key": uuid.NewString()}, body)
	path := "/v1/campaigns/" + created.ID.String()
	if a := s.Do(0, s.Operator, http.MethodPost, path+"/publish", map[string]string{"Idempotency-Key": uuid.NewString()}, nil); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	for name, change := range map[string]any{"another end": time.Now().Add(2 * long).UTC().Format(time.RFC3339), "no end": nil} {
		if a := s.Do(0, s.Operator, http.MethodPatch, path, nil, map[string]any{"sale_ends_at": change}); a.Status != http.StatusConflict {
			t.Errorf("%s: %v", name, a)
		}
	}
	order := func(i int) fleet.Order {
		return fleet.Order{Campaign: created.ID, User: "user-" + strconv.Itoa(i), Wait: true}
	}
	if before := fleet.Count(s.Crowd(10, order)); before["succeeded"] != 10 {
		t.Errorf("before the end: %v", before)
	}
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		clock.MoveOn(long)
	}()
	during := fleet.Count(s.Crowd(40, order))
	<-moved
	after := fleet.Count(s.Crowd(10, order))
	if refused := after["sale-not-open"] + after["campaign-not-active"]; refused != 10 {
		t.Errorf("after the end: %v", after)
	}
	if during["succeeded"]+during["sale-not-open"]+during["campaign-not-active"] != 40 {
		t.Errorf("while it ended: %v", during)
	}
	s.AwaitDrawn(created.ID)
	want := campaign.Counts{Total: 78, Sold: 10 + during["succeeded"]}
	if c := s.CampaignNow(created.ID); c.Counts != want || c.DrawsAt == nil {
		t.Errorf("%+v; sold should be %d", c, want.Sold)
	}
	if n := s.Draws(); n != 1 {
		t.Errorf("%d draws", n)
	}
	layers, err := inventory.CountByLayer(t.Context(), s.DB, created.ID)
	if err != nil || len(layers) != 12 {
		t.Fatal(layers, err)
	}
	var awarded, possible int
	for _, l := range layers {
		if l.Sold > 0 { // one prize in each layer
			possible++
		}
	}
	if err := s.DB.QueryRow(t.Context(), `SELECT count(winning_column) FROM prizes WHERE campaign_id = $1`, created.ID).Scan(&awarded); err != nil || awarded != possible {
		t.Errorf("%d prizes are awarded, %d layers have candidates; %v", awarded, possible, err)
	}
}
