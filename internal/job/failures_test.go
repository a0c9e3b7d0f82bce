package job_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/testkit/servers"
)

func TestFailuresAreCountedAmongABoundedNumberOfTheNewestJobs(t *testing.T) {
	t.Parallel()
	const n, most = 20_000, 1000
	db := servers.DB(t)
	many(t, db, n, uuid.New(), uuid.New()) // every hundredth has failed, from the seventh on
	reads := servers.CountReads(t, db)
	at := func(i int) time.Time { return time.UnixMilli(1700000000000 + int64(i)) } // when the i-th was accepted
	for name, c := range map[string]struct {
		since, until, count int
		complete            bool
		newest              int
	}{
		"more than the bound":       {0, n + 1, most / 100, false, n - 93},
		"as many as the bound":      {n - most + 1, n + 1, most / 100, true, n - 93},
		"since is in it, not until": {7, 107, 1, true, 7},
		"none":                      {8, 107, 0, true, 0},
	} {
		all, complete, err := job.ListFailures(t.Context(), reads, at(c.since), at(c.until), []fault.Code{fault.SoldOut, fault.InternalError}, most)
		servers.NoError(t, err)
		if complete != c.complete || len(all) != min(c.count, 1) || len(all) > 0 && (all[0].Count != c.count || !uuidv7.MadeAt(all[0].Newest[0]).Equal(at(c.newest)) || len(all[0].Newest) != min(c.count, 10)) {
			t.Errorf("%s: %+v, complete %t; want %+v", name, all, complete, c)
		}
		if rows, plan := reads.Rows(); rows > 2*most+100 {
			t.Errorf("%s: %d rows looked at: %s", name, rows, plan)
		}
	}
}
