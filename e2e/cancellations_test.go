//go:build soak

package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestCancellationsOfAKilledWorkerAreFinalAndFreeOnce(t *testing.T) {
	for _, moment := range []string{"cancellation.commit", "cancellation.committed"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1})
			s.App = s.NewKey("test") // the purchases are of this client
			id := s.Campaign(4)
			bought := []uuid.UUID{fixture.Buy(t, s.DB, id, "a", 0, 3), fixture.Buy(t, s.DB, id, "b", 0, 1), fixture.Buy(t, s.DB, id, "c", 0, 1)}
			doomed := s.RunWorker("TRIPRIZE_TEST_FAILPOINTS=" + moment + "=kill")
			var jobs []uuid.UUID
			for _, purchase := range bought[:2] {
				a := s.Do(0, s.App, http.MethodPost, "/v1/purchases/"+purchase.String()+"/cancel", map[string]string{"Idempotency-Key": purchase.String()}, map[string]string{})
				if a.Status != http.StatusAccepted {
					t.Fatal(a)
				}
				jobs = append(jobs, a.ID)
			}
			servers.Eventually(t, "the worker dies in its first cancellation", func() bool { return doomed.PID() == 0 })
			fixture.Sound(t, s.DB) // nothing half
			s.RunWorker()
			servers.Eventually(t, "every job is final", func() bool {
				all, err := job.GetAll(t.Context(), s.DB, jobs)
				return err == nil && len(all) == 2 && all[0].State.Final() && all[1].State.Final()
			})
			for _, id := range jobs {
				if a := s.Job(id); a.State != job.Succeeded {
					t.Errorf("%v", a)
				}
			}
			if n := s.CampaignNow(id).Counts.Sold; n != 1 {
				t.Errorf("%d are sold", n)
			}
		})
	}
}

// A whole fleet under both: what some give back is sold again, and in the end all
// is sold and drawn.
func TestASaleWithCancellationsEndsSoldOutAndDrawn(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 2, APIs: 2})
	id := s.Campaign(10)
	var shoppers sync.WaitGroup
	for shopper := range 20 {
		shoppers.Go(func() {
			for i := range 3 {
				a := s.Buy(fleet.Order{Campaign: id, User: fmt.Sprintf("shopper-%d-%d", shopper, i), Wait: true, API: i})
				if a.State == job.Succeeded && i < 2 {
					if back := s.Cancel(s.App, a.Result.PurchaseID, uuid.NewString(), "changed my mind"); !back.State.Final() {
						t.Errorf("%v", back)
					}
				}
			}
		})
	}
	shoppers.Wait()
	left := s.CampaignNow(id).Counts.Available()
	if got := fleet.Count(s.Crowd(left, func(i int) fleet.Order { return fleet.Order{Campaign: id, User: fmt.Sprint("late-", i), Wait: true} })); got["succeeded"] != left {
		t.Errorf("of %d left: %v", left, got)
	}
	s.AwaitDrawn(id)
}
