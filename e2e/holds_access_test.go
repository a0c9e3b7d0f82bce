package e2e

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/platform/devstack"
	"triprize/internal/store/job"
)

func TestAHoldIsItsUsersOwn(t *testing.T) {
	t.Parallel()
	s := start(t, trusting)
	id := s.campaign(4)
	mina, otto := tokenFor(t, "mina", ""), tokenFor(t, "otto", "")
	hers := s.mustHold(ask{campaign: id, user: "mina", credential: mina, at: []place{{3, 2}}})
	for what, a := range map[string]answer{
		"GET": s.holdNow(otto, hers.ID).answer, "DELETE": s.release(otto, hers.ID), "extend": s.extend(otto, hers.ID).answer, "nobody's": s.holdNow(otto, uuid.New()).answer,
	} {
		if a.status != http.StatusNotFound || a.code() != "not-found" || contains(a.body, "mina") {
			t.Errorf("%s by another user: %v %s", what, a, a.body)
		}
	}
	if h := s.hold(ask{campaign: id, user: "mina", credential: otto, at: []place{{4, 1}}}); h.status != http.StatusForbidden || h.code() != "forbidden" {
		t.Errorf("a hold for somebody else: %v", h)
	}
	if h := s.hold(ask{campaign: id, user: "v", credential: tokenFor(t, "v", "viewer"), at: []place{{4, 1}}}); h.status != http.StatusForbidden {
		t.Errorf("a viewer's hold: %v", h)
	}
	if a := s.readAs(0, otto, "/v1/campaigns/"+id.String()+"/positions/3/2", ""); !contains(a.body, `"held"`) || contains(a.body, "mina") {
		t.Errorf("the position, to another: %s", a.body)
	}
	// Apps act for users: as another user the app has no such hold either, as hers it has.
	if a := s.buyChosen(0, id, "otto", hers.ID); a.State != job.Failed || a.code() != "not-found" {
		t.Errorf("another user buys it: %v %s", a, a.body)
	}
	elsewhere := s.campaign(4)
	if a := s.buyChosen(0, elsewhere, "mina", hers.ID); a.State != job.Failed || a.code() != "not-found" {
		t.Errorf("she buys it in another campaign: %v %s", a, a.body)
	}
	if h := s.holdNow(mina, hers.ID); h.State != "active" || h.Extensions != 0 {
		t.Errorf("after all that: %v", h)
	}
	if h := s.extend(s.app, hers.ID); h.status != http.StatusOK || h.Extensions != 1 || !h.ExpiresAt.After(hers.ExpiresAt) {
		t.Errorf("an app extends it for her: %v", h)
	}
	bought := s.buyChosen(0, id, "mina", hers.ID)
	if bought.State != job.Succeeded || len(bought.Result.Positions) != 1 || bought.Result.Positions[0] != (place{3, 2}) {
		t.Errorf("she buys it: %v %s", bought, bought.body)
	}
	if h := s.holdNow(mina, hers.ID); h.State != "used" || h.PurchaseID == nil || *h.PurchaseID != bought.Result.PurchaseID {
		t.Errorf("it is %v", h)
	}
	if a := s.buyChosen(0, id, "mina", hers.ID); a.code() != "state-conflict" {
		t.Errorf("she buys it twice: %v", a)
	}
	if a := s.release(mina, hers.ID); a.code() != "state-conflict" {
		t.Errorf("she gives back what she bought: %v", a)
	}
}

func TestWhatBecomesOfHoldsAndLocksIsCounted(t *testing.T) {
	t.Parallel()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, options{schedulers: -1, workerEnv: []string{"TRIPRIZE_WORKER_LISTEN=" + address}})
	s.urls = append(s.urls, "http://"+address)
	id := s.campaign(4)
	for _, series := range []string{"triprize_lock_conflicts_total", "triprize_lock_lost_total", "triprize_requests_replayed_total"} {
		if n := s.metric(0, series); n != 0 {
			t.Errorf("%s begins at %.0f", series, n)
		}
	}
	used := s.mustHold(ask{campaign: id, user: "a", key: "k", at: []place{{3, 2}}})
	s.hold(ask{campaign: id, user: "a", key: "k", at: []place{{3, 2}}}) // a replay
	released := s.mustHold(ask{campaign: id, user: "b", at: []place{{4, 1}}})
	if a := s.release(s.app, released.ID); a.status != http.StatusNoContent {
		t.Error(a)
	}
	if a := s.release(s.app, released.ID); a.status != http.StatusNoContent { // again: counted once
		t.Error(a)
	}
	if h := s.extend(s.app, used.ID); h.status != http.StatusOK {
		t.Error(h)
	}
	over := s.mustHold(ask{campaign: id, user: "c", at: []place{{4, 2}}, ttl: 1})
	eventually(t, recoveryBound, "it is over", func() bool { return s.holdNow(s.app, over.ID).State == "expired" })
	swept := s.mustHold(ask{campaign: id, user: "d", at: []place{{4, 2}}, ttl: 1}) // reclaims the one before
	eventually(t, recoveryBound, "it is over", func() bool { return s.holdNow(s.app, swept.ID).State == "expired" })
	s.do(0, s.operator, http.MethodPost, "/v1/sweeps/expired-holds", nil, nil)
	s.awaitMetric(0, `triprize_lock_wait_seconds_count{outcome="acquired"}`, 4)
	key := s.settings.Redis.Namespace + ":lock:position:" + id.String() + ":1/1"
	if err := s.rdb.Set(t.Context(), key, "of another", recoveryBound).Err(); err != nil {
		t.Fatal(err)
	}
	s.mustHold(ask{campaign: id, user: "e", at: []place{{1, 1}}})
	if a := s.buyChosen(0, id, "a", used.ID); a.State != job.Succeeded {
		t.Error(a)
	}
	s.awaitMetric(1, `triprize_holds_total{event="used"}`, 1) // the worker did that
	for series, want := range map[string]float64{
		`triprize_holds_total{event="made"}`: 5, `triprize_holds_total{event="released"}`: 1, `triprize_holds_total{event="extended"}`: 1,
		`triprize_holds_total{event="reclaimed"}`: 1, `triprize_holds_total{event="expired"}`: 1, `triprize_holds_total{event="used"}`: 0,
		"triprize_requests_replayed_total": 1, "triprize_lock_conflicts_total": 3, `triprize_lock_wait_seconds_count{outcome="taken"}`: 1,
	} {
		if n := s.metric(0, series); n != want {
			t.Errorf("%s is %.0f, want %.0f", series, n, want)
		}
	}
}
