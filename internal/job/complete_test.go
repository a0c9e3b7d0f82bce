package job_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestAJobIsSettledOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := accepted(t, db, 2)
	id := ids[0]
	for _, o := range []job.Outcome{{ID: id, Result: json.RawMessage(`{"b": 1, "a": 2}`)}, {ID: ids[1], Problem: &job.Problem{Code: "sold-out", Detail: "all 10 are sold"}}} {
		servers.NoError(t, complete(t, db, o))
	}
	for name, o := range map[string]job.Outcome{
		"again":       {ID: id, Result: json.RawMessage(`{}`)},
		"as failed":   {ID: id, Problem: &job.Problem{Code: "sold-out"}},
		"unknown job": {ID: uuid.New(), Result: json.RawMessage(`{}`)},
	} {
		if err := complete(t, db, o); !errors.Is(err, job.ErrFinal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	j := fixture.Job(t, db, id)
	if j.State != job.Succeeded || string(j.Result) != `{"b": 1, "a": 2}` || j.FinishedAt == nil || j.Attempts != 1 {
		t.Errorf("got %+v, result %s", j, j.Result)
	}
	if j := fixture.Job(t, db, ids[1]); j.State != job.Failed || j.Problem.Code != "sold-out" || j.Problem.Detail != "all 10 are sold" || j.Result != nil {
		t.Errorf("got %+v", j)
	}
	if given, err := job.GiveUp(t.Context(), db, []uuid.UUID{id}, job.Problem{Code: "internal-error"}); err != nil || len(given) != 0 {
		t.Errorf("a finalized job was given up: %v, %v", given, err)
	}
}

func TestDeliveriesAreCountedFromTheSecondOn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := accepted(t, db, 3)
	expectWaiting := func(alone int, order ...uuid.UUID) {
		t.Helper()
		refs := make([]job.Ref, len(ids))
		for i, id := range ids {
			refs[i] = job.Ref{ID: id, CampaignID: *fixture.Job(t, db, id).CampaignID}
		}
		waiting, err := job.FindQueued(t.Context(), db, job.KindPurchase, refs)
		if err != nil || len(waiting) != len(order) {
			t.Fatal(waiting, err)
		}
		for i, one := range waiting {
			if one.ID != order[i] || one.CampaignID != *fixture.Job(t, db, one.ID).CampaignID || one.TryAlone() != (i >= len(order)-alone) {
				t.Errorf("of %v, place %d is %+v", order, i, one)
			}
		}
	}
	at := func(attempts int, ids ...uuid.UUID) (jobs []job.Ref) {
		for _, id := range ids {
			jobs = append(jobs, job.Ref{ID: id, Attempts: attempts})
		}
		return jobs
	}
	slices.SortFunc(ids, uuidv7.Compare)
	expectWaiting(0, ids...)
	if n, err := job.Begin(t.Context(), db, at(0, ids[:2]...)); err != nil || n != 2 {
		t.Fatalf("the second delivery is counted as %d, %v", n, err)
	}
	expectWaiting(2, ids[2], ids[0], ids[1]) // the least tried first
	if n, err := job.Begin(t.Context(), db, at(2, ids[0])); err != nil || n != 3 {
		t.Fatalf("the third delivery is counted as %d, %v", n, err)
	}
	for range 2 { // nobody knows whether the first was committed
		servers.NoError(t, job.Uncount(t.Context(), db, append(at(2, ids[0]), at(0, ids[2])...)))
	}
	for i, want := range []int{2, 2, 0} {
		if j := fixture.Job(t, db, ids[i]); j.Attempts != want {
			t.Errorf("after a transient fault: %d attempts at job %d", j.Attempts, i)
		}
	}
	servers.NoError(t, complete(t, db, job.Outcome{ID: ids[0], Result: json.RawMessage(`{}`)}))
	if n, err := job.Begin(t.Context(), db, at(2, ids[0])); err != nil || n != 0 {
		t.Errorf("a delivery of a finalized job is counted as %d, %v", n, err)
	}
	expectWaiting(1, ids[2], ids[1])
}

func TestRefusedJobsAreListedForTheSweepThatDeletesThem(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := accepted(t, db, 4)
	var b pgx.Batch
	job.QueueComplete(&b, []job.Outcome{
		{ID: ids[0], Result: json.RawMessage(`{}`)},
		job.Refused(ids[1], fault.New(fault.SoldOut, "all 10 positions are sold")),
		job.Refused(ids[2], errors.New("a defect")),
		job.Refused(ids[3], fault.New(fault.InsufficientFunds, "too little")),
	})
	servers.NoError(t, db.SendBatch(t.Context(), &b).Close())
	var listed []uuid.UUID
	if err := db.QueryRow(t.Context(), `SELECT jobs FROM refused_jobs`).Scan(&listed); err != nil { // one row
		t.Fatal(err)
	}
	if want := []uuid.UUID{ids[1], ids[3]}; !slices.Equal(listed, want) {
		t.Errorf("listed %v, want %v", listed, want)
	}
}
