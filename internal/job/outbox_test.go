package job_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/fixture"
	"triprize/internal/job"
	"triprize/internal/postgres"
)

// age makes every ring look as if it had been seen that long ago.
func age(t *testing.T, db *pgxpool.Pool, by time.Duration) {
	t.Helper()
	if _, err := db.Exec(t.Context(), `UPDATE rings SET seen_at = clock_timestamp() - $1 * interval '1 second'`, by.Seconds()); err != nil {
		t.Fatal(err)
	}
}

func ringAgain(t *testing.T, db *pgxpool.Pool, lost []uuid.UUID) (rings []job.Ring) {
	t.Helper()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) (err error) {
		rings, err = job.RingAgain(t.Context(), tx, lost)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rings
}

func overdue(t *testing.T, db *pgxpool.Pool, backoff, longest time.Duration) (ids []uuid.UUID) {
	t.Helper()
	rings, err := job.Overdue(t.Context(), db, backoff, longest, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rings {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestLostRingsAreBundledAndLeaveOutWhatIsDone(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	const n = 600
	for range n { // each with a ring of its own
		accepted(t, db, 1)
	}
	var done uuid.UUID
	if err := db.QueryRow(t.Context(), `SELECT id FROM jobs LIMIT 1`).Scan(&done); err != nil {
		t.Fatal(err)
	}
	if err := settle(t, db, job.Outcome{ID: done, Problem: &job.Problem{Code: "sold-out"}}); err != nil {
		t.Fatal(err)
	}
	age(t, db, time.Minute)
	lost := overdue(t, db, time.Second, time.Hour)
	if len(lost) != n {
		t.Fatalf("%d rings are overdue", len(lost))
	}
	rings := ringAgain(t, db, lost)
	jobs := make(map[uuid.UUID]bool)
	for _, r := range rings {
		if len(r.Jobs) > job.MaxRing || r.Number != 2 {
			t.Errorf("ring of %d jobs, number %d", len(r.Jobs), r.Number)
		}
		for _, j := range r.Jobs {
			jobs[j.ID] = true
		}
	}
	if len(rings) != 3 || len(jobs) != n-1 || jobs[done] {
		t.Errorf("%d rings for %d jobs", len(rings), len(jobs))
	}
	if again := ringAgain(t, db, lost); len(again) != 0 {
		t.Errorf("a second sweep rings again for what the first did: %v", again)
	}
	fixture.Sound(t, db)
}

func TestTheBackoffDoublesWithEveryRing(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	accepted(t, db, 1)
	const backoff, longest = 10 * time.Second, 60 * time.Second
	for number, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 60 * time.Second, 60 * time.Second} {
		age(t, db, want-2*time.Second)
		if ids := overdue(t, db, backoff, longest); len(ids) != 0 {
			t.Errorf("ring number %d is overdue before %s", number+1, want)
		}
		age(t, db, want+time.Second)
		ids := overdue(t, db, backoff, longest)
		if len(ids) != 1 {
			t.Fatalf("ring number %d is not overdue after %s", number+1, want)
		}
		ringAgain(t, db, ids)
	}
}

func TestARingThatWasSeenIsNotOverdue(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	accepted(t, db, 1)
	age(t, db, time.Minute)
	ids := overdue(t, db, time.Second, time.Hour)
	if err := job.Seen(t.Context(), db, ids); err != nil {
		t.Fatal(err)
	}
	if ids := overdue(t, db, time.Second, time.Hour); len(ids) != 0 {
		t.Errorf("overdue: %v", ids)
	}
}

func TestOnlyFinalJobsPastTheirTimeAreDeleted(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	ids := accepted(t, db, 3)
	for _, id := range ids[:2] {
		if err := settle(t, db, job.Outcome{ID: id, Result: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := db.Exec(t.Context(), `UPDATE jobs SET expires_at = clock_timestamp() - interval '1 s' WHERE id = ANY($1)`, []uuid.UUID{ids[0], ids[2]})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := job.DeleteExpired(t.Context(), db, 100); err != nil || n != 1 {
		t.Errorf("deleted %d, %v", n, err)
	}
	left, err := job.GetAll(t.Context(), db, ids)
	if err != nil || len(left) != 2 {
		t.Errorf("%d jobs are left, %v", len(left), err)
	}
}

func TestAJobOfTheSystemIsInsertedOnce(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	campaign := uuid.New()
	var rings [2][]job.Ring
	for i := range rings {
		err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) (err error) {
			rings[i], err = job.Insert(t.Context(), tx, job.DrawRequest(campaign, "", time.Hour))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(rings[0]) != 1 || len(rings[1]) != 0 {
		t.Errorf("rings: %v", rings)
	}
}
