package job_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// each does commands that answer with their key, and returns those that were fresh, too.
func each(t *testing.T, db *pgxpool.Pool, requests ...job.Request) (done []job.Accepted, fresh []int) {
	t.Helper()
	done, err := job.OnceEach(t.Context(), db, requests, func(_ pgx.Tx, undone []int) ([]job.Answer, error) {
		fresh = slices.Clone(undone)
		answers := make([]job.Answer, len(undone))
		for at, i := range undone {
			answers[at] = job.Answer{Body: requests[i].Key}
		}
		return answers, nil
	})
	servers.NoError(t, err)
	return done, fresh
}

func TestEachCommandOfABatchIsAnsweredInItsPlaceAndOncePerKey(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	before := []job.Request{request("k", "a"), request("l", "a")}
	for i, c := range []struct {
		requests    []job.Request
		fresh, told string
	}{
		{before, "[0 1]", "1, 2"},
		{[]job.Request{request("z", "a"), request("b", "a"), request("m", "a")}, "[0 1 2]", "1, 2, 3"}, // not in the order of keys
		{[]job.Request{request("c", "a"), request("c", "a"), request("d", "a"), request("c", "b")}, "[0 2]", "1, 1 replayed, 3, 1 reused"},
		{[]job.Request{request("k", "a"), request("new", "a"), request("l", "c"), before[0], before[1]}, "[1]", "4 replayed, 2, 5 reused, 4, 5"},
		{[]job.Request{request("k", "a"), before[0]}, "[]", "2 replayed, 2"},
	} {
		for at := range c.requests {
			c.requests[at].HTTPStatus = 200 + int(c.requests[at].Key[0])
		}
		done, fresh := each(t, db, c.requests...)
		if got := toldOf(c.requests, done); got != c.told || fmt.Sprint(fresh) != c.fresh {
			t.Errorf("batch %d: %s; fresh are %v", i, got, fresh)
		}
		for at, d := range done {
			r := c.requests[at]
			if d.Reused {
				continue
			}
			if row := fixture.Job(t, db, d.Job.ID); string(d.Job.Result) != fmt.Sprintf("%q", r.Key) || *d.Job.HTTPStatus != r.HTTPStatus ||
				row.State != job.Succeeded || string(row.Result) != string(d.Job.Result) || *row.HTTPStatus != r.HTTPStatus {
				t.Errorf("batch %d, command %d: %+v, the row %+v", i, at, d, row)
			}
		}
	}
}

func TestARefusalInABatchStaysOrLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	about := fault.New(fault.StateConflict, "it is there")
	about.About = fault.About{Kind: fault.AboutWallet, ID: "the-other"}
	refusals := map[string]error{"stays: a conflict": about, "stays: not there": fault.New(fault.NotFound, "no"), "stays: a mismatch": fault.New(fault.VersionMismatch, "no"),
		"invalid": fault.New(fault.InvalidRequest, "no"), "unavailable": fault.New(fault.Unavailable, "no"), "a defect": errors.New("oh")}
	var requests []job.Request
	for _, key := range slices.Sorted(maps.Keys(refusals)) {
		requests = append(requests, request(key, "a"))
	}
	requests = append(requests, request("good", "a"), request("invalid", "a"), request("invalid", "b"))
	done, err := job.OnceEach(t.Context(), db, requests, func(_ pgx.Tx, fresh []int) ([]job.Answer, error) {
		var answers []job.Answer
		for _, i := range fresh {
			answers = append(answers, job.Answer{Refusal: refusals[requests[i].Key]})
		}
		return answers, nil
	})
	servers.NoError(t, err)
	if got, want := toldOf(requests, done), "oh, "+refusals["invalid"].Error()+", 3, 4, 5, "+refusals["unavailable"].Error()+", 7, "+refusals["invalid"].Error()+", "+done[8].Err.Error(); got != want ||
		fault.CodeOf(done[8].Err) != fault.KeyReused {
		t.Errorf("%s", got)
	}
	for i, r := range requests[:len(refusals)] {
		stays := strings.HasPrefix(r.Key, "stays")
		if stays && (done[i].Job.State != job.Failed || done[i].Job.Problem.Code != fault.CodeOf(refusals[r.Key])) {
			t.Errorf("%s: %+v", r.Key, done[i])
		}
		if again, fresh := each(t, db, request(r.Key, "a")); stays != (fresh == nil) || stays != again[0].Replayed || stays != (again[0].Job.State == job.Failed) {
			t.Errorf("%s, again: %+v", r.Key, again[0])
		}
		if r.Key == "stays: a conflict" && fixture.Job(t, db, r.ID).Problem.Err().About.ID != "the-other" {
			t.Error("what stands in the way is forgotten")
		}
	}
}

func TestAnErrorOfABatchUndoesAll(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	changed := fixture.Watch(t, db)
	fails := errors.New("a defect")
	two := []job.Answer{{}, {}}
	for name, end := range map[string]func(tx pgx.Tx) ([]job.Answer, error){
		"an error":     func(pgx.Tx) ([]job.Answer, error) { return two, fails },
		"too few":      func(pgx.Tx) ([]job.Answer, error) { return two[:1], nil },
		"not for JSON": func(pgx.Tx) ([]job.Answer, error) { return []job.Answer{{Body: func() {}}, two[1]}, nil },
		"a claim is gone": func(tx pgx.Tx) ([]job.Answer, error) {
			_, err := tx.Exec(t.Context(), `DELETE FROM jobs WHERE idempotency_key = 'l'`)
			return two, err
		},
	} {
		done, err := job.OnceEach(t.Context(), db, []job.Request{request("k", "a"), request("l", "a")}, func(tx pgx.Tx, _ []int) ([]job.Answer, error) {
			servers.Exec(t, tx, `INSERT INTO api_clients (name, role) VALUES ('the-effect', 'app')`)
			return end(tx)
		})
		if err == nil || done != nil || name == "an error" && !errors.Is(err, fails) {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
	}
	changed("")
	if n := servers.Value[int](t, db, `SELECT count(*) FROM api_clients`); n != 0 {
		t.Error("the effect stayed")
	}
}

// A third transaction has the key in the middle while two batches claim the same
// keys in opposite orders. If each had its own order, both would wait
// for a key that the other has.
func TestBatchesClaimKeysInOneOrder(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	first, middle, last := request("a", "a"), request("m", "a"), request("z", "a")
	nothing := func(_ pgx.Tx, fresh []int) ([]job.Answer, error) { return make([]job.Answer, len(fresh)), nil }
	var wg sync.WaitGroup
	_, err := job.OnceEach(t.Context(), db, []job.Request{middle}, func(tx pgx.Tx, fresh []int) ([]job.Answer, error) {
		for _, requests := range [][]job.Request{{first, middle, last}, {last, middle, first}} {
			for i := range requests {
				requests[i].ID = uuidv7.New()
			}
			wg.Go(func() {
				if _, err := job.OnceEach(context.Background(), db, requests, nothing); err != nil {
					t.Error(err)
				}
			})
		}
		servers.AwaitBlocked(t, db, 2)
		return nothing(tx, fresh)
	})
	if err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestARefusalIsRememberedAndItsEffectUndoneAndAFaultLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	victim := accepted(t, db, 1)[0]
	do := func(err error) func(pgx.Tx) (any, error) {
		return func(tx pgx.Tx) (any, error) {
			servers.Exec(t, tx, `UPDATE jobs SET user_id = 'the effect' WHERE id = $1`, victim)
			return nil, err
		}
	}
	for _, fails := range []error{errors.New("a defect"), context.DeadlineExceeded, fault.New(fault.Unavailable, "later")} {
		if _, err := job.Once(t.Context(), db, request("k", "a"), do(fails)); !errors.Is(err, fails) {
			t.Errorf("got %v, want %v", err, fails)
		}
	}
	for try := range 2 {
		a, err := job.Once(t.Context(), db, request("k", "a"), do(fault.New(fault.StateConflict, "no")))
		if err != nil || a.Replayed != (try == 1) || a.Job.Problem == nil || a.Job.Problem.Code != fault.StateConflict {
			t.Errorf("try %d: %+v, %v", try, a, err)
		}
	}
	if *fixture.Job(t, db, victim).UserID == "the effect" {
		t.Error("an effect stayed")
	}
	if a, err := job.Once(t.Context(), db, request("k", "b"), nil); err != nil || !a.Reused {
		t.Errorf("another request with the key: %+v, %v", a, err)
	}
	a, err := job.Once(t.Context(), db, request("l", "a"), do(nil))
	if err != nil || a.Replayed || string(a.Job.Result) != "null" || *fixture.Job(t, db, victim).UserID != "the effect" {
		t.Errorf("done: %+v, %v", a, err)
	}
}
