package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// each does commands that answer with their place among the fresh ones.
func each(t *testing.T, db *pgxpool.Pool, requests ...job.Request) (done []job.Done, fresh []int) {
	t.Helper()
	done, err := job.OnceEach(t.Context(), db, requests, func(_ pgx.Tx, undone []int) ([]job.Answer, error) {
		fresh = slices.Clone(undone)
		answers := make([]job.Answer, len(undone))
		for at, i := range undone {
			answers[at] = job.Answer{Body: requests[i].Key}
		}
		return answers, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return done, fresh
}

func TestEachCommandOfABatchIsAnsweredInItsPlace(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	requests := []job.Request{request("z", "a"), request("a", "a"), request("m", "a")} // not in the order of keys
	for i := range requests {
		requests[i].HTTPStatus = 200 + i
	}
	done, fresh := each(t, db, requests...)
	if !slices.Equal(fresh, []int{0, 1, 2}) {
		t.Errorf("done in the order %v", fresh)
	}
	for i, d := range done {
		if d.Err != nil || d.Replayed || d.Reused || d.Job.ID != requests[i].ID || string(d.Job.Result) != fmt.Sprintf("%q", requests[i].Key) || *d.Job.HTTPStatus != 200+i {
			t.Errorf("command %d: %+v", i, d)
		}
		if j := fixture.Job(t, db, requests[i].ID); j.State != job.Succeeded || string(j.Result) != string(d.Job.Result) || *j.HTTPStatus != 200+i {
			t.Errorf("row %d: %+v", i, j)
		}
	}
}

func TestEqualKeysOfABatchHaveOneEffect(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	first := request("k", "a")
	done, fresh := each(t, db, first, request("k", "a"), request("l", "a"), request("k", "b"))
	if !slices.Equal(fresh, []int{0, 2}) {
		t.Errorf("fresh are %v", fresh)
	}
	if done[0].Replayed || !done[1].Replayed || done[1].Reused || done[1].Job.ID != first.ID || string(done[1].Job.Result) != `"k"` || !done[3].Reused {
		t.Errorf("done: %+v", done)
	}
	again, fresh := each(t, db, request("k", "a"), request("new", "a"), request("l", "c"))
	if !slices.Equal(fresh, []int{1}) || !again[0].Replayed || again[0].Reused || string(again[0].Job.Result) != `"k"` || *again[0].Job.HTTPStatus != 201 || again[1].Replayed || !again[2].Reused {
		t.Errorf("again: fresh %v, %+v", fresh, again)
	}
	if again, fresh = each(t, db, request("k", "a")); fresh != nil || !again[0].Replayed {
		t.Errorf("nothing new: %v, %+v", fresh, again)
	}
}

func TestARefusalInABatchStaysOrLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	about := fault.New(fault.StateConflict, "it is there")
	about.About = fault.About{Kind: fault.AboutWallet, ID: "the-other"}
	refusals := map[string]struct {
		err  error
		stay bool
	}{
		"a conflict": {about, true}, "not there": {fault.New(fault.NotFound, "no"), true}, "a mismatch": {fault.New(fault.VersionMismatch, "no"), true},
		"invalid": {fault.New(fault.InvalidRequest, "no"), false}, "unavailable": {fault.New(fault.Unavailable, "no"), false}, "a defect": {errors.New("oh"), false},
	}
	var requests []job.Request
	for key := range refusals {
		requests = append(requests, request(key, "a"))
	}
	requests = append(requests, request("good", "a"), request("invalid", "a"), request("invalid", "b"))
	refuse := func(_ pgx.Tx, fresh []int) ([]job.Answer, error) {
		var answers []job.Answer
		for _, i := range fresh {
			answers = append(answers, job.Answer{Refusal: refusals[requests[i].Key].err})
		}
		return answers, nil
	}
	done, err := job.OnceEach(t.Context(), db, requests, refuse)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range requests[:len(refusals)] {
		want, d := refusals[r.Key], done[i]
		if want.stay && (d.Err != nil || d.Job.State != job.Failed || d.Job.Problem.Code != fault.CodeOf(want.err) || d.Replayed) ||
			!want.stay && !errors.Is(d.Err, want.err) {
			t.Errorf("%s: %+v", r.Key, d)
		}
		if r.Key == "a conflict" && fixture.Job(t, db, r.ID).Problem.Err().About.ID != "the-other" {
			t.Error("what stands in the way is forgotten")
		}
	}
	n := len(refusals)
	if done[n].Err != nil || done[n].Job.State != job.Succeeded {
		t.Errorf("the good one: %+v", done[n])
	}
	if !errors.Is(done[n+1].Err, refusals["invalid"].err) || fault.CodeOf(done[n+2].Err) != fault.KeyReused {
		t.Errorf("the same, and another with its key: %v, %v", done[n+1].Err, done[n+2].Err)
	}
	for key, want := range refusals {
		d, fresh := each(t, db, request(key, "a"))
		if want.stay != (fresh == nil) || want.stay != d[0].Replayed || want.stay != (d[0].Job.State == job.Failed) {
			t.Errorf("%s, again: %+v", key, d[0])
		}
	}
}

func TestAnErrorOfABatchUndoesAll(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	victim := acceptedJob(t, db, 1)[0]
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
			if _, err := tx.Exec(t.Context(), `UPDATE jobs SET user_id = 'the effect' WHERE id = $1`, victim); err != nil {
				t.Error(err)
			}
			return end(tx)
		})
		if err == nil || done != nil || name == "an error" && !errors.Is(err, fails) {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
	}
	if j := fixture.Job(t, db, victim); *j.UserID == "the effect" {
		t.Error("the effect stayed")
	}
	if _, fresh := each(t, db, request("k", "a"), request("l", "a")); len(fresh) != 2 {
		t.Errorf("after it, fresh are %v", fresh)
	}
}

func TestBatchesWithTheSameKeysInAnyOrderDoEachOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	const keys, batches = 40, 6
	var ran [keys]atomic.Int32
	answers := [batches][keys]string{}
	var wg sync.WaitGroup
	for c := range batches {
		wg.Go(func() {
			var requests []job.Request
			at := func(i int) int { return (i*7 + c*11) % keys } // another order for each
			if c%2 == 1 {
				at = func(i int) int { return keys - 1 - i }
			}
			for i := range keys {
				requests = append(requests, request(fmt.Sprint(at(i)), "a"))
			}
			done, err := job.OnceEach(context.Background(), db, requests, func(_ pgx.Tx, fresh []int) ([]job.Answer, error) {
				var answers []job.Answer
				for _, i := range fresh {
					ran[at(i)].Add(1)
					answers = append(answers, job.Answer{Body: fmt.Sprint(c, "/", at(i))})
				}
				return answers, nil
			})
			if err != nil {
				t.Errorf("batch %d: %v", c, err)
				return
			}
			for i, d := range done {
				answers[c][at(i)] = string(d.Job.Result)
			}
		})
	}
	wg.Wait()
	for key := range keys {
		if n := ran[key].Load(); n != 1 {
			t.Errorf("command %d was done %d times", key, n)
		}
		for c := range batches {
			if answers[c][key] != answers[0][key] || answers[c][key] == "" {
				t.Errorf("command %d: batch %d was told %q, batch 0 %q", key, c, answers[c][key], answers[0][key])
			}
		}
	}
}

// A third transaction has the key in the middle while two batches claim the same
// keys in opposite orders. If each had its own order, both would wait
// for a key that the other has.
func TestBatchesClaimKeysInOneOrder(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	first, middle, last := request("a", "a"), request("m", "a"), request("z", "a")
	var wg sync.WaitGroup
	_, err := job.OnceEach(t.Context(), db, []job.Request{middle}, func(_ pgx.Tx, fresh []int) ([]job.Answer, error) {
		for _, order := range [][]job.Request{{first, middle, last}, {last, middle, first}} {
			requests := make([]job.Request, len(order))
			for i, r := range order {
				r.ID = uuidv7.New()
				requests[i] = r
			}
			wg.Go(func() {
				_, err := job.OnceEach(context.Background(), db, requests, func(_ pgx.Tx, fresh []int) ([]job.Answer, error) {
					return make([]job.Answer, len(fresh)), nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		servers.AwaitBlocked(t, db, 2)
		return make([]job.Answer, len(fresh)), nil
	})
	if err != nil {
		t.Error(err)
	}
	wg.Wait()
}
