package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// Workers die at each step of an erasure, and Redis is emptied: the next one goes on. A month that is closed stays as it is,
// whatever becomes of its buyers.
func TestAUserIsErasedWhateverWorkersDie(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Private: true, Workers: -1, Env: []string{"TRIPRIZE_SWEEPS_LOST_JOBS_INTERVAL=300ms", "TRIPRIZE_SWEEPS_LOST_JOBS_BACKOFF=500ms",
		"TRIPRIZE_SWEEPS_LOST_JOBS_MAX_BACKOFF=2s", "TRIPRIZE_WORKER_HEARTBEAT_INTERVAL=200ms", "TRIPRIZE_WORKER_HEARTBEAT_TTL=600ms", "TRIPRIZE_WORKER_MAX_DELIVERIES=100"}})
	const user = "mina-4711"
	s.App = s.NewKey("test")                           // the purchases are of this client
	id := fixture.Campaign(t, s.DB, fixture.Draft(15)) // 120 positions
	requests, ids, moments := make([]job.Request, 120), make([]uuid.UUID, 120), make([]time.Time, 120)
	for i := range requests {
		moments[i] = time.Date(2026, 2, 1, 12+i, 0, 0, 0, time.UTC)
		ids[i] = uuidv7.FirstAt(moments[i])
		requests[i] = fixture.PurchaseRequest(t, id, user, 0, 1)
		requests[i].ID = ids[i]
	}
	fixture.Complete(t, s.DB, requests...)
	drawer := s.RunWorker()
	s.AwaitDrawn(id)
	servers.NoError(t, drawer.Stop(terminate, servers.Patience))
	fixture.Move(t, s.DB, fixture.Wallet(t, s.DB, user, 5), -5)
	servers.Exec(t, s.DB, `UPDATE purchases SET created_at = at, completed_at = at FROM unnest($1::uuid[], $2::timestamptz[]) AS u (purchase, at) WHERE id = purchase`, ids, moments)
	servers.Exec(t, s.DB, `UPDATE campaigns SET created_at = '2026-02-01'`)
	month := func(command string) string {
		t.Helper()
		out, errs, status := run(t, []string{"TRIPRIZE_POSTGRES_URL=" + s.Settings.Postgres.URL}, "books", command, "2026-02")
		if status != 0 {
			t.Errorf("triprize books %s ends with %d: %s%s", command, status, out, errs)
		}
		return out
	}
	fleet.Want(t, http.StatusOK, s.Do(0, s.Operator, http.MethodPost, "/v1/books/months/2026-02/close", map[string]string{"Idempotency-Key": "february"}, fleet.Fields{"zone": "UTC"}))
	servers.Eventually(t, "the month is closed", func() bool {
		return servers.Value[int](t, s.DB, `SELECT count(*) FROM book_periods WHERE entries = 120`) == 1
	})
	verified := month("verify")

	a := s.Execute("/v1/users/"+user+"/erase", fleet.Fields{"reason": "asked by " + user})
	fleet.Want(t, http.StatusAccepted, a)
	for _, point := range []string{"person.begun", "person.batch@jobs", "person.batch@purchases", "person.forget"} {
		died(t, "the worker at "+point, s.RunWorker("TRIPRIZE_TEST_FAILPOINTS="+point+"=kill"))
		if n := servers.Value[int](t, s.DB, `SELECT count(*) FROM jobs WHERE kind = 'erasure' AND state = 'queued'`); n != 1 {
			t.Fatalf("%s: %d erasures are queued", point, n)
		}
		servers.NoError(t, s.Redis.FlushAll(t.Context()).Err())
	}
	s.RunWorker()
	done := s.AwaitJob(0, a.ID)
	fleet.WantSucceeded(t, done)
	if !strings.Contains(string(done.Body), `"purchases":120`) {
		t.Errorf("the answer is %s", done.Body)
	}
	if left := fixture.RowsWith(t, s.DB, user); len(left) > 0 {
		t.Errorf("it is in %s", left)
	}
	if again := month("verify"); again != verified {
		t.Errorf("the month was %s and is %s", verified, again)
	}
}
