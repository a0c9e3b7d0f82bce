package job_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// In a flush with others, purchases with new keys make no job exactly when their campaign is in
// a state that never sells again. Keys that have a job keep it, and other kinds make theirs.
func TestAPurchaseOfAClosedCampaignMakesNoJob(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var requests []job.Request
	add := func(r job.Request, kind job.Kind, of uuid.UUID) {
		r.Kind, r.CampaignID = kind, of
		requests = append(requests, r)
	}
	for _, state := range campaign.States {
		id := uuidv7.New()
		servers.Exec(t, db, `
			INSERT INTO campaigns (id, name, base_length, currency, state, policies, positions_total, positions_sold,
			                       published_at, draw_started_at, draw_completed_at, cancelled_at, cancelled_by)
			SELECT $1, 'A campaign', 4, 'JPY', $2, '{}', 10, 5, CASE WHEN $2 <> 'pending' THEN now() END,
			       CASE WHEN $2 IN ('drawing', 'completed') THEN now() END, CASE WHEN $2 = 'completed' THEN now() END,
			       CASE WHEN $2 = 'cancelled' THEN now() END, CASE WHEN $2 = 'cancelled' THEN 'operator:ops' END`, id, string(state))
		used := requestOutbox("used "+string(state), "a")
		used.Kind = job.KindCancellation // it makes a job in every state
		fixture.Accept(t, db, used)
		add(used, job.KindPurchase, id)
		add(requestOutbox("other body "+string(state), "a"), job.KindPurchase, id)
		add(requestOutbox("other body "+string(state), "b"), job.KindPurchase, id)
		add(requestOutbox("cancel "+string(state), "a"), job.KindCancellation, id)
	}
	before := servers.Value[int](t, db, `SELECT count(*) FROM jobs`)
	accepted, messages, err := job.Accept(t.Context(), db, requests)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for i, state := range campaign.States {
		of := accepted[4*i : 4*i+4]
		if of[0].Err != nil || of[0].Job.ID != requests[4*i].ID {
			t.Errorf("%s, a used key: %+v", state, of[0])
		}
		for _, one := range of[1:3] {
			if errors.Is(one.Err, job.ErrClosed) != state.Closed() || state.Closed() != (one.Job.ID == uuid.Nil) {
				t.Errorf("%s, a new key: %+v", state, one)
			}
		}
		if of[3].Err != nil || of[3].Job.ID != requests[4*i+3].ID {
			t.Errorf("%s, a cancellation: %+v", state, of[3])
		}
		made++
		if !state.Closed() {
			made++
		}
	}
	if n := servers.Value[int](t, db, `SELECT count(*) FROM jobs`) - before; n != made {
		t.Errorf("%d jobs were made, and not %d", n, made)
	}
	inMessages := 0
	for _, m := range messages {
		inMessages += len(m.Jobs)
	}
	if inMessages != made {
		t.Errorf("messages have %d jobs of %d", inMessages, made)
	}
}

// The sweep old-records deletes the job of a taken key before it is read. Beside a purchase of the
// same campaign, which is refused, the request has to come again.
func TestACancellationWhoseKeyHasJustBeenDeletedIsNotRefused(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	purchase, cancellation := requestOutbox("new", "a"), requestOutbox("taken", "a")
	purchase.CampaignID, cancellation.CampaignID, cancellation.Kind = id, id, job.KindCancellation
	fixture.Accept(t, db, cancellation)
	cancellation.ID = uuidv7.New()
	var b pgx.Batch
	campaign.QueueCancel(&b, id, "operator:ops", "a test")
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	if accepted, _, err := job.Accept(t.Context(), swept{db, func() { servers.Exec(t, db, `DELETE FROM jobs`) }}, []job.Request{purchase, cancellation}); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("%+v, %v", accepted, err)
	}
}

// swept is a database in which something happens before each query that follows a batch.
type swept struct {
	postgres.DB
	before func()
}

func (s swept) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	s.before()
	return s.DB.Query(ctx, sql, args...)
}

// A request that may make no job gets the job of its key, and its own refusal where there is none;
// the others of its batch, also with the same key, are not held up by that.
func TestARequestThatMayMakeNoJobIsOnlyLookedUp(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	overloaded := errors.New("too many wait")
	known, unknown, other, shared := requestOutbox("known", "a"), requestOutbox("unknown", "a"), requestOutbox("known", "b"), requestOutbox("shared", "a")
	fixture.Accept(t, db, known)
	var requests []job.Request
	for _, r := range []job.Request{known, unknown, other, shared} {
		r.ID, r.Unless = uuidv7.New(), overloaded
		requests = append(requests, r)
	}
	done, messages, err := job.Accept(t.Context(), db, requests)
	if err != nil || len(messages) != 0 || servers.Value[int](t, db, `SELECT count(*) FROM jobs`) != 1 {
		t.Fatalf("%v, messages: %+v", err, messages)
	}
	if a := done[0]; a.Err != nil || !a.Replayed || a.Reused || a.Job.ID != known.ID {
		t.Errorf("the known key: %+v", a)
	}
	if a := done[1]; !errors.Is(a.Err, overloaded) {
		t.Errorf("a free key: %+v", a)
	}
	if a := done[2]; a.Err != nil || !a.Reused {
		t.Errorf("the known key with another request: %+v", a)
	}
	done, messages, err = job.Accept(t.Context(), db, append(requests, shared, requestOutbox("new", "a")))
	if err != nil || len(messages) != 1 || len(messages[0].Jobs) != 2 {
		t.Fatalf("%v, messages: %+v", err, messages)
	}
	if a := done[3]; a.Err != nil || !a.Replayed || a.Job.ID != shared.ID {
		t.Errorf("a key that another request of the batch has used: %+v", a)
	}
	if a := done[4]; a.Err != nil || a.Replayed || a.Job.ID != shared.ID {
		t.Errorf("that request: %+v", a)
	}
}

// Of two requests with one key the first may be of a closed campaign: neither makes a job, and no
// other request of the batch is held up.
func TestAKeyOfAClosedCampaignHoldsUpNoOtherRequest(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	closed, open := fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3))
	fixture.SellOut(t, db, closed)
	first, second, other := requestOutbox("one", "a"), requestOutbox("one", "b"), requestOutbox("another", "a")
	first.Kind, first.CampaignID = job.KindPurchase, closed
	second.Kind, second.CampaignID = job.KindPurchase, open
	other.Kind, other.CampaignID = job.KindPurchase, open
	done, messages, err := job.Accept(t.Context(), db, []job.Request{first, second, other})
	if err != nil || len(messages) != 1 || len(messages[0].Jobs) != 1 {
		t.Fatalf("%+v, %+v, %v", done, messages, err)
	}
	if !errors.Is(done[0].Err, job.ErrClosed) || !errors.Is(done[1].Err, job.ErrClosed) || done[2].Err != nil || done[2].Job.ID != other.ID {
		t.Errorf("%+v", done)
	}
}
