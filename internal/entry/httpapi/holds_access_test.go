package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/devkit/devstack"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestAHoldIsItsUsersOwn(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id := s.Campaign(4)
	mina, otto := fleet.TokenFor(t, "mina", ""), fleet.TokenFor(t, "otto", "")
	hers := s.MustHold(fleet.HoldOrder{Campaign: id, User: "mina", Credential: mina, At: []shape.Position{fixture.At(3, 2)}})
	for what, a := range map[string]fleet.Answer{
		"GET": s.HoldNow(otto, hers.ID).Answer, "DELETE": s.Release(otto, hers.ID), "extend": s.Extend(otto, hers.ID).Answer, "nobody's": s.HoldNow(otto, uuid.New()).Answer,
	} {
		if a.Status != http.StatusNotFound || a.Refusal() != "not-found" || fleet.Contains(a.Body, "mina") {
			t.Errorf("%s by another user: %v %s", what, a, a.Body)
		}
	}
	if h := s.Hold(fleet.HoldOrder{Campaign: id, User: "mina", Credential: otto, At: []shape.Position{fixture.At(4, 1)}}); h.Status != http.StatusForbidden || h.Refusal() != "forbidden" {
		t.Errorf("a hold for somebody else: %v", h)
	}
	if h := s.Hold(fleet.HoldOrder{Campaign: id, User: "v", Credential: fleet.TokenFor(t, "v", "viewer"), At: []shape.Position{fixture.At(4, 1)}}); h.Status != http.StatusForbidden {
		t.Errorf("a viewer's hold: %v", h)
	}
	if a := readAs(s, 0, otto, "/v1/campaigns/"+id.String()+"/positions/3/2", ""); !fleet.Contains(a.Body, `"held"`) || fleet.Contains(a.Body, "mina") {
		t.Errorf("the position, to another: %s", a.Body)
	}
	// Apps act for users: as another user the app has no such hold either, as hers it has.
	if a := s.BuyChosen(0, id, "otto", hers.ID); a.State != job.Failed || a.Refusal() != "not-found" {
		t.Errorf("another user buys it: %v %s", a, a.Body)
	}
	elsewhere := s.Campaign(4)
	if a := s.BuyChosen(0, elsewhere, "mina", hers.ID); a.State != job.Failed || a.Refusal() != "not-found" {
		t.Errorf("she buys it in another campaign: %v %s", a, a.Body)
	}
	if h := s.HoldNow(mina, hers.ID); h.State != "active" || h.Extensions != 0 {
		t.Errorf("after all that: %v", h)
	}
	if h := s.Extend(s.App, hers.ID); h.Status != http.StatusOK || h.Extensions != 1 || !h.ExpiresAt.After(hers.ExpiresAt) {
		t.Errorf("an app extends it for her: %v", h)
	}
	bought := s.BuyChosen(0, id, "mina", hers.ID)
	if bought.State != job.Succeeded || len(bought.Result.Positions) != 1 || bought.Result.Positions[0] != (fixture.At(3, 2)) {
		t.Errorf("she buys it: %v %s", bought, bought.Body)
	}
	if h := s.HoldNow(mina, hers.ID); h.State != "used" || h.PurchaseID == nil || *h.PurchaseID != bought.Result.PurchaseID {
		t.Errorf("it is %v", h)
	}
	if a := s.BuyChosen(0, id, "mina", hers.ID); a.Refusal() != "state-conflict" {
		t.Errorf("she buys it twice: %v", a)
	}
	if a := s.Release(mina, hers.ID); a.Refusal() != "state-conflict" {
		t.Errorf("she gives back what she bought: %v", a)
	}
}

func TestWhatBecomesOfHoldsAndLocksIsCounted(t *testing.T) {
	t.Parallel()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := fleet.Start(t, fleet.Options{Schedulers: -1, WorkerEnv: []string{"TRIPRIZE_WORKER_LISTEN=" + address}})
	s.URLs = append(s.URLs, "http://"+address)
	id := s.Campaign(4)
	for _, series := range []string{"triprize_lock_conflicts_total", "triprize_lock_lost_total", "triprize_requests_replayed_total"} {
		if n := s.Metric(0, series); n != 0 {
			t.Errorf("%s begins at %.0f", series, n)
		}
	}
	used := s.MustHold(fleet.HoldOrder{Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(3, 2)}})
	s.Hold(fleet.HoldOrder{Campaign: id, User: "a", Key: "k", At: []shape.Position{fixture.At(3, 2)}}) // a replay
	released := s.MustHold(fleet.HoldOrder{Campaign: id, User: "b", At: []shape.Position{fixture.At(4, 1)}})
	if a := s.Release(s.App, released.ID); a.Status != http.StatusNoContent {
		t.Error(a)
	}
	if a := s.Release(s.App, released.ID); a.Status != http.StatusNoContent { // again: counted once
		t.Error(a)
	}
	if h := s.Extend(s.App, used.ID); h.Status != http.StatusOK {
		t.Error(h)
	}
	over := s.MustHold(fleet.HoldOrder{Campaign: id, User: "c", At: []shape.Position{fixture.At(4, 2)}, TTL: 1})
	servers.Eventually(t, "it is over", func() bool { return s.HoldNow(s.App, over.ID).State == "expired" })
	swept := s.MustHold(fleet.HoldOrder{Campaign: id, User: "d", At: []shape.Position{fixture.At(4, 2)}, TTL: 1}) // reclaims the one before
	servers.Eventually(t, "it is over", func() bool { return s.HoldNow(s.App, swept.ID).State == "expired" })
	s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/expired-holds", nil, nil)
	s.AwaitMetric(0, `triprize_lock_wait_seconds_count{outcome="acquired"}`, 4)
	key := s.Settings.Redis.Namespace + ":lock:position:" + id.String() + ":1/1"
	if err := s.Redis.Set(t.Context(), key, "of another", 15*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	s.MustHold(fleet.HoldOrder{Campaign: id, User: "e", At: []shape.Position{fixture.At(1, 1)}})
	if a := s.BuyChosen(0, id, "a", used.ID); a.State != job.Succeeded {
		t.Error(a)
	}
	s.AwaitMetric(1, `triprize_holds_total{event="used"}`, 1) // the worker did that
	for series, want := range map[string]float64{
		`triprize_holds_total{event="made"}`: 5, `triprize_holds_total{event="released"}`: 1, `triprize_holds_total{event="extended"}`: 1,
		`triprize_holds_total{event="reclaimed"}`: 1, `triprize_holds_total{event="expired"}`: 1, `triprize_holds_total{event="used"}`: 0,
		"triprize_requests_replayed_total": 1, "triprize_lock_conflicts_total": 3, `triprize_lock_wait_seconds_count{outcome="taken"}`: 1,
	} {
		if n := s.Metric(0, series); n != want {
			t.Errorf("%s is %.0f, want %.0f", series, n, want)
		}
	}
}
