package job_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestACommandIsDoneOncePerKey(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var ran atomic.Int32
	answers := make([]job.Accepted, 20)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			var err error
			answers[i], err = job.Once(t.Context(), db, request("k", "a"), func(pgx.Tx) (any, error) {
				ran.Add(1)
				return map[string]int{"z": 1, "a": 2}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := ran.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	replayed := 0
	for _, a := range answers {
		if a.Job.ID != answers[0].Job.ID || !bytes.Equal(a.Job.Result, answers[0].Job.Result) || *a.Job.HTTPStatus != 201 {
			t.Errorf("answers differ: %+v and %+v", a.Job, answers[0].Job)
		}
		if a.Replayed {
			replayed++
		}
	}
	if replayed != 19 {
		t.Errorf("%d answers are replays", replayed)
	}
	if a, err := job.Once(t.Context(), db, request("k", "another request"), nil); err != nil || !a.Reused {
		t.Errorf("another request with the key: %+v, %v", a, err)
	}
}

func TestARefusalIsRememberedAndItsEffectUndone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	victim := acceptedJob(t, db, 1)[0]
	refuse := func(tx pgx.Tx) (any, error) {
		if _, err := tx.Exec(t.Context(), `UPDATE jobs SET user_id = 'the effect' WHERE id = $1`, victim); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.StateConflict, "no")
	}
	for try := range 2 {
		a, err := job.Once(t.Context(), db, request("k", "a"), refuse)
		if err != nil || a.Replayed != (try == 1) || a.Job.Problem == nil || a.Job.Problem.Code != fault.StateConflict {
			t.Errorf("try %d: %+v, %v", try, a, err)
		}
	}
	if j := fixture.Job(t, db, victim); *j.UserID == "the effect" {
		t.Error("the effect of a refused command stayed")
	}
}

func TestAFaultLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, fails := range []error{errors.New("a defect"), context.DeadlineExceeded, fault.New(fault.Unavailable, "later")} {
		if _, err := job.Once(t.Context(), db, request("k", "a"), func(pgx.Tx) (any, error) { return nil, fails }); !errors.Is(err, fails) {
			t.Errorf("got %v, want %v", err, fails)
		}
	}
	a, err := job.Once(t.Context(), db, request("k", "a"), func(pgx.Tx) (any, error) { return "done", nil })
	if err != nil || a.Replayed || string(a.Job.Result) != `"done"` {
		t.Errorf("after the faults: %+v, %v", a, err)
	}
}
