package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// cancel asks to cancel a purchase and waits for up to 10 s.
func (s *system) cancel(credential string, purchase uuid.UUID, key, reason string) answer {
	return s.do(0, credential, http.MethodPost, "/v1/purchases/"+purchase.String()+"/cancel",
		map[string]string{"Idempotency-Key": key, "Prefer": "wait=10"}, map[string]string{"reason": reason})
}

// purchaseDocument is what the tests read of a purchase.
type purchaseDocument struct {
	State        string
	Cancellation *struct {
		At     time.Time
		By     string
		Reason *string
	}
	Timeline []struct{ Event string }
}

func (s *system) purchase(credential string, id uuid.UUID) (p purchaseDocument) {
	s.t.Helper()
	a := s.do(0, credential, http.MethodGet, "/v1/purchases/"+id.String(), nil, nil)
	if err := json.Unmarshal(a.body, &p); err != nil || a.status != http.StatusOK {
		s.t.Fatalf("purchase %s: %v", id, a)
	}
	return p
}

func TestACancelledPurchaseIsFreeForAnotherAndSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	s := start(t, trusting)
	draft, limit := fixture.Draft(3), 1
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, s.db, draft)
	bought := s.buy(order{campaign: id, user: "mina", layer: 1, wait: 10})
	if p := s.purchase(s.app, bought.Result.PurchaseID); p.State != "completed" || p.Cancellation != nil {
		t.Errorf("before: %+v", p)
	}
	if a := s.buy(order{campaign: id, user: "otto", layer: 1, wait: 10}); a.code() != "sold-out" {
		t.Errorf("before: %v", a)
	}
	cancelled := s.cancel(s.app, bought.Result.PurchaseID, "back", "too dear")
	if cancelled.status != http.StatusOK || cancelled.State != job.Succeeded || cancelled.Result.PurchaseID != bought.Result.PurchaseID ||
		cancelled.Result.Amount != 100 || len(cancelled.Result.Positions) != 1 || !contains(cancelled.body, `"kind":"cancellation"`) {
		t.Fatalf("%v %s", cancelled, cancelled.body)
	}
	p := s.purchase(s.app, bought.Result.PurchaseID)
	if p.State != "cancelled" || p.Cancellation.By != "app:shop" || *p.Cancellation.Reason != "too dear" || len(p.Timeline) != 3 || p.Timeline[2].Event != "cancelled" {
		t.Errorf("after: %+v, %+v", p, p.Cancellation)
	}
	if p := s.purchase(tokenFor(t, "mina", ""), bought.Result.PurchaseID); p.Cancellation.By != "app" {
		t.Errorf("the user reads that it was %s", p.Cancellation.By)
	}
	if again := s.cancel(s.app, bought.Result.PurchaseID, "back", "too dear"); again.ID != cancelled.ID || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same key: %v", again)
	}
	if other := s.cancel(s.app, bought.Result.PurchaseID, "back", "another reason"); other.code() != "idempotency-key-reused" {
		t.Errorf("the same key, another request: %v", other)
	}
	if twice := s.cancel(s.app, bought.Result.PurchaseID, "back again", ""); twice.State != job.Failed || twice.code() != "state-conflict" {
		t.Errorf("another key: %v", twice)
	}
	for _, user := range []string{"otto", "mina"} { // the position is free, and so is her limit
		layer := map[string]int{"otto": 1}[user]
		if a := s.buy(order{campaign: id, user: user, layer: layer, wait: 10}); a.State != job.Succeeded {
			t.Errorf("%s buys: %v", user, a)
		}
	}
	if c := s.campaignNow(id); c.Counts.Sold != 2 {
		t.Errorf("%+v", c.Counts)
	}
}

func TestAUserCancelsOnlyWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	s := start(t, trusting)
	id := s.campaign(3)
	mine, his := s.buy(order{campaign: id, user: "mina", wait: 10}), s.buy(order{campaign: id, user: "otto", wait: 10})
	mina := tokenFor(t, "mina", "")
	for what, c := range map[string]struct {
		credential string
		purchase   uuid.UUID
		status     int
	}{
		"his":         {mina, his.Result.PurchaseID, http.StatusNotFound},
		"nobody's":    {mina, uuid.New(), http.StatusNotFound},
		"no such":     {s.app, uuid.New(), http.StatusNotFound},
		"as a viewer": {tokenFor(t, "mina", "viewer"), mine.Result.PurchaseID, http.StatusForbidden},
		"as nobody":   {"", mine.Result.PurchaseID, http.StatusUnauthorized},
	} {
		if a := s.cancel(c.credential, c.purchase, uuid.NewString(), ""); a.status != c.status {
			t.Errorf("%s: want %d, got %v", what, c.status, a)
		}
	}
	if a := s.cancel(mina, mine.Result.PurchaseID, "k", ""); a.State != job.Succeeded {
		t.Errorf("her own: %v", a)
	}
	if p := s.purchase(s.operator, mine.Result.PurchaseID); !strings.HasPrefix(p.Cancellation.By, "user:jwt:") || !strings.HasSuffix(p.Cancellation.By, "/mina") || p.Cancellation.Reason != nil {
		t.Errorf("by %s", p.Cancellation.By)
	}
	if p := s.purchase(mina, mine.Result.PurchaseID); p.Cancellation.By != "user" {
		t.Errorf("by %s", p.Cancellation.By)
	}
	if n := s.campaignNow(id).Counts.Sold; n != 1 {
		t.Errorf("%d are sold", n)
	}
	for body, says := range map[string]string{
		`{"reason":"` + strings.Repeat("r", 501) + `"}`: "/reason", `{"reason":"a\u0000b"}`: "/reason", `{"why":"x"}`: "/why", `[]`: "object", ` `: "JSON",
	} {
		a := s.raw(http.MethodPost, "/v1/purchases/"+his.Result.PurchaseID.String()+"/cancel", body, "", "")
		if a.status != http.StatusBadRequest || !contains(a.body, says) {
			t.Errorf("%.20s: %v %s", body, a, a.body)
		}
	}
}

func TestAfterTheDeadlineAnOperatorCancelsAndAnAppDoesNot(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	draft, until := fixture.Draft(3), time.Now().Add(-time.Minute)
	draft.Policies.CancellationUntil = &until
	id := fixture.Campaign(t, s.db, draft)
	bought := s.buy(order{campaign: id, user: "a", wait: 10})
	if a := s.cancel(s.app, bought.Result.PurchaseID, "k", ""); a.code() != "state-conflict" || !strings.Contains(a.Problem.Detail, "until") {
		t.Errorf("an app: %v", a)
	}
	if a := s.cancel(s.operator, bought.Result.PurchaseID, "k", "a courtesy"); a.State != job.Succeeded {
		t.Errorf("an operator: %v", a)
	}
	if p := s.purchase(s.app, bought.Result.PurchaseID); p.Cancellation == nil || p.Cancellation.By != "operator:ops" {
		t.Errorf("%+v", p.Cancellation)
	}
}

func TestCancellationsOfAKilledWorkerAreFinalWithin15SecondsAndFreeOnce(t *testing.T) {
	for _, moment := range []string{"cancellation.commit", "cancellation.committed"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{workers: -1})
			id := s.campaign(4)
			bought := []uuid.UUID{fixture.Buy(t, s.db, id, "a", 0, 3), fixture.Buy(t, s.db, id, "b", 0, 1), fixture.Buy(t, s.db, id, "c", 0, 1)}
			doomed := s.startWorker("TRIPRIZE_TEST_FAILPOINTS=" + moment + "=kill")
			var jobs []uuid.UUID
			for _, purchase := range bought[:2] {
				a := s.do(0, s.app, http.MethodPost, "/v1/purchases/"+purchase.String()+"/cancel", map[string]string{"Idempotency-Key": purchase.String()}, map[string]string{})
				if a.status != http.StatusAccepted {
					t.Fatal(a)
				}
				jobs = append(jobs, a.ID)
			}
			eventually(t, 20*time.Second, "the worker dies in its first cancellation", func() bool { return doomed.PID() == 0 })
			died := time.Now()
			fixture.Sound(t, s.db) // nothing half
			s.startWorker()
			eventually(t, recoveryBound-time.Since(died), "every job is final", func() bool {
				all, err := job.GetAll(t.Context(), s.db, jobs)
				return err == nil && len(all) == 2 && all[0].State.Final() && all[1].State.Final()
			})
			t.Logf("final %.1f s after the kill", time.Since(died).Seconds())
			for _, id := range jobs {
				if a := s.job(id); a.State != job.Succeeded {
					t.Errorf("%v", a)
				}
			}
			if n := s.campaignNow(id).Counts.Sold; n != 1 {
				t.Errorf("%d are sold", n)
			}
		})
	}
}

// A whole fleet under both: what some give back is sold again, and in the end all
// is sold and drawn.
func TestASaleWithCancellationsEndsSoldOutAndDrawn(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: 2, apis: 2})
	id := s.campaign(10)
	var shoppers sync.WaitGroup
	for shopper := range 20 {
		shoppers.Go(func() {
			for i := range 3 {
				a := s.buy(order{campaign: id, user: fmt.Sprintf("shopper-%d-%d", shopper, i), wait: 20, api: i})
				if a.State == job.Succeeded && i < 2 {
					if back := s.cancel(s.app, a.Result.PurchaseID, uuid.NewString(), "changed my mind"); !back.State.Final() {
						t.Errorf("%v", back)
					}
				}
			}
		})
	}
	shoppers.Wait()
	left := s.campaignNow(id).Counts.Available()
	if got := tally(s.crowd(left, func(i int) order { return order{campaign: id, user: fmt.Sprint("late-", i), wait: 20} })); got["succeeded"] != left {
		t.Errorf("of %d left: %v", left, got)
	}
	s.awaitDrawn(30*time.Second, id)
}
