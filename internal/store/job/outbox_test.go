package job_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// age makes every ring look as if it had been seen that long ago.
func age(t *testing.T, db *pgxpool.Pool, by time.Duration) {
	t.Helper()
	if _, err := db.Exec(t.Context(), `UPDATE rings SET seen_at = clock_timestamp() - $1 * interval '1 second'`, by.Seconds()); err != nil {
		t.Fatal(err)
	}
}

func ringAgain(t *testing.T, db *pgxpool.Pool, lost, abandoned []uuid.UUID) (rings []job.Ring) {
	t.Helper()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) (err error) {
		rings, err = job.RingAgain(t.Context(), tx, lost, abandoned)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rings
}

// overdue walks through all overdue rings.
func overdue(t *testing.T, db *pgxpool.Pool, backoff job.Backoff) (ids []uuid.UUID) {
	t.Helper()
	walk, err := job.FindOverdue(t.Context(), db, backoff)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rings, err := walk.Next(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(rings) == 0 {
			return ids
		}
		for _, r := range rings {
			ids = append(ids, r.ID)
		}
	}
}

// minute is a backoff that is over for whatever was seen a minute ago.
func minute() job.Backoff {
	return job.Backoff{First: time.Second, Longest: 30 * time.Second, Deaths: 5}
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
	lost := overdue(t, db, minute())
	if len(lost) != n {
		t.Fatalf("%d rings are overdue", len(lost))
	}
	rings := ringAgain(t, db, lost, nil)
	jobs := make(map[uuid.UUID]bool)
	for _, r := range rings {
		if len(r.Jobs) > job.MaxRing || r.Number != 1 { // nobody has had them
			t.Errorf("ring of %d jobs, number %d", len(r.Jobs), r.Number)
		}
		for _, j := range r.Jobs {
			jobs[j.ID] = true
		}
	}
	if len(rings) != 3 || len(jobs) != n-1 || jobs[done] {
		t.Errorf("%d rings for %d jobs", len(rings), len(jobs))
	}
	if again := ringAgain(t, db, lost, lost); len(again) != 0 {
		t.Errorf("a second sweep rings again for what the first did: %v", again)
	}
	fixture.Sound(t, db)
}

func TestOnlyRingsThatWereAbandonedCountAsDelivered(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	for range 3 {
		accepted(t, db, 1)
	}
	age(t, db, time.Minute)
	lost := overdue(t, db, minute())
	numbers := make(map[int]int)
	for _, r := range ringAgain(t, db, lost, lost[:1]) {
		numbers[r.Number] += len(r.Jobs)
	}
	if numbers[1] != 2 || numbers[2] != 1 {
		t.Errorf("jobs by the number of their ring: %v", numbers)
	}
}

func TestTheBackoffDoublesOnlyAfterMoreDeathsThanAJobSurvives(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	accepted(t, db, 1)
	backoff := job.Backoff{First: 10 * time.Second, Longest: 60 * time.Second, Deaths: 3}
	for i, seconds := range []int{10, 10, 10, 20, 40, 60, 60} {
		want := time.Duration(seconds) * time.Second
		age(t, db, want/2)
		if ids := overdue(t, db, backoff); len(ids) != 0 {
			t.Errorf("ring number %d is overdue before %s", i+1, want)
		}
		age(t, db, want+time.Second)
		ids := overdue(t, db, backoff)
		if len(ids) != 1 {
			t.Fatalf("ring number %d is not overdue after %s", i+1, want)
		}
		ringAgain(t, db, ids, ids)
	}
}

func TestAWalkMeetsEveryOverdueRingOnce(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	const n = 250
	for range n {
		accepted(t, db, 1)
	}
	age(t, db, time.Minute) // all at nearly the same moment: their ids decide
	if _, err := db.Exec(t.Context(), `UPDATE rings SET seen_at = (SELECT min(seen_at) FROM rings)`); err != nil {
		t.Fatal(err)
	}
	walk, err := job.FindOverdue(t.Context(), db, minute())
	if err != nil {
		t.Fatal(err)
	}
	met := make(map[uuid.UUID]bool)
	for {
		rings, err := walk.Next(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(rings) == 0 {
			break
		}
		var ids []uuid.UUID
		for _, r := range rings {
			if met[r.ID] {
				t.Fatalf("ring %s is met again", r.ID)
			}
			met[r.ID] = true
			ids = append(ids, r.ID)
		}
		if err := job.Seen(t.Context(), db, ids[:len(ids)/2]); err != nil { // some move, others stay
			t.Fatal(err)
		}
	}
	if len(met) != n {
		t.Errorf("%d of %d rings were met", len(met), n)
	}
}

func TestARingThatWasSeenIsNotOverdue(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	accepted(t, db, 1)
	age(t, db, time.Minute)
	hour := job.Backoff{First: 30 * time.Second, Longest: time.Hour, Deaths: 5}
	ids := overdue(t, db, hour)
	if len(ids) != 1 {
		t.Fatalf("overdue: %v", ids)
	}
	if err := job.Seen(t.Context(), db, ids); err != nil {
		t.Fatal(err)
	}
	if ids := overdue(t, db, hour); len(ids) != 0 {
		t.Errorf("overdue: %v", ids)
	}
}

func TestABatchOfAcceptedJobsFitsIntoOneRing(t *testing.T) {
	t.Setenv("TRIPRIZE_POSTGRES_URL", "postgres://localhost/triprize")
	t.Setenv("TRIPRIZE_REDIS_URL", "redis://localhost:6379/0")
	for size, want := range map[int]bool{job.MaxRing: true, job.MaxRing + 1: false} {
		t.Setenv("TRIPRIZE_ACCEPT_BATCH_SIZE", strconv.Itoa(size))
		if _, err := config.Load(""); (err == nil) != want {
			t.Errorf("accept.batch_size %d: %v", size, err)
		}
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
