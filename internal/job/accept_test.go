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
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Each is accepted at once.
func TestRequestsWithOneKeyHaveOneJob(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	theirs, draw := request("f", "b"), request("d", "a")
	theirs.Client, draw.Kind = "another shop", job.KindDraw
	twice := []job.Request{request("g", "a"), request("h", "a")} // as after a commit whose answer was lost
	accept(t, db, twice...)
	for name, c := range map[string]struct {
		requests       []job.Request
		told, messages string
	}{
		"equal keys":                      {[]job.Request{request("k", "a"), request("l", "a"), request("k", "a"), request("k", "b")}, "1, 2, 1 replayed, 1 reused", "purchase 2"},
		"a key belongs to its client":     {[]job.Request{request("f", "a"), theirs}, "1, 2", "purchase 2"},
		"each kind has its message":       {[]job.Request{request("p", "a"), draw}, "1, 2", "draw 1, purchase 1"},
		"accepted again, with a new one":  {append(twice, request("m", "a")), "1, 2, 3", "purchase 1"},
		"accepted again, with no new one": {twice, "1, 2", ""},
	} {
		if told, messages := accept(t, db, c.requests...); told != c.told || messages != c.messages {
			t.Errorf("%s: %s; messages: %s", name, told, messages)
		}
	}
	if n, jobs := servers.Value[int](t, db, `SELECT count(*) FROM jobs`), servers.Value[int](t, db, `SELECT sum(cardinality(jobs)) FROM outbox_messages`); n != jobs {
		t.Errorf("%d jobs, and %d in messages", n, jobs)
	}
	_, messages, err := job.Accept(t.Context(), db, []job.Request{request("of a task", "a")})
	servers.NoError(t, err)
	m := messages[0]
	if back, err := job.MessageOf(m.Task()); err != nil || back.ID != m.ID || back.Kind != m.Kind || back.Delivery != 1 || len(back.Jobs) != 1 || back.Jobs[0] != m.Jobs[0] {
		t.Errorf("%+v became %+v, %v", m, back, err)
	}
}

func TestAKnownKeyGetsItsJobAsItIsNow(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	first := request("k", "a")
	accept(t, db, first)
	fail(t, db, first.ID)
	done, messages, err := job.Accept(t.Context(), db, []job.Request{request("k", "a"), request("new", "a")})
	if err != nil || sizes(messages) != "purchase 1" || messages[0].Jobs[0].ID == first.ID {
		t.Fatalf("%+v, %v", messages, err)
	}
	if a := done[0]; !a.Replayed || a.Job.ID != first.ID || a.Job.State != job.Failed || a.Job.Problem.Code != "internal-error" {
		t.Errorf("got %+v", a)
	}
}

// In a flush with others, purchases with new keys make no job exactly when their campaign is in
// a state that never sells again. Keys that have a job keep it, and other kinds make theirs.
func TestAPurchaseOfAClosedCampaignMakesNoJob(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var requests []job.Request
	for _, state := range campaign.States {
		id := uuidv7.New()
		servers.Exec(t, db, `
			INSERT INTO campaigns (id, name, base_length, currency, state, policies, positions_total, positions_sold,
			                       published_at, draw_started_at, draw_completed_at, cancelled_at, cancelled_by)
			SELECT $1, 'A campaign', 4, 'JPY', $2, '{}', 10, 5, CASE WHEN $2 <> 'pending' THEN now() END,
			       CASE WHEN $2 IN ('drawing', 'completed') THEN now() END, CASE WHEN $2 = 'completed' THEN now() END,
			       CASE WHEN $2 = 'cancelled' THEN now() END, CASE WHEN $2 = 'cancelled' THEN 'operator:ops' END`, id, string(state))
		used := request("used "+string(state), "a")
		used.Kind = job.KindCancellation // it makes a job in every state
		accept(t, db, used)
		used.Kind = job.KindPurchase
		of := []job.Request{used, request("new "+string(state), "a"), request("new "+string(state), "b"), request("cancel "+string(state), "a")}
		of[3].Kind = job.KindCancellation
		for _, r := range of {
			r.CampaignID = id
			requests = append(requests, r)
		}
	}
	done, messages, err := job.Accept(t.Context(), db, requests)
	if err != nil || sizes(messages) != "cancellation 5, purchase 2" {
		t.Fatalf("%s, %v", sizes(messages), err)
	}
	for i, state := range campaign.States {
		want := "1, 2, 2 reused, 4"
		if state.Closed() {
			want = "1, " + job.ErrClosed.Error() + ", " + job.ErrClosed.Error() + ", 4"
		}
		if got := toldOf(requests[4*i:4*i+4], done[4*i:4*i+4]); got != want {
			t.Errorf("%s: %s", state, got)
		}
	}
	if n := servers.Value[int](t, db, `SELECT count(*) FROM jobs`); n != 5+7 {
		t.Errorf("there are %d jobs", n)
	}
}

// The sweep old-records deletes the job of a taken key before it is read. Beside a purchase of the
// same campaign, which is refused, the request has to come again.
func TestACancellationWhoseKeyHasJustBeenDeletedIsNotRefused(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	purchase, cancellation := request("new", "a"), request("taken", "a")
	purchase.CampaignID, cancellation.CampaignID, cancellation.Kind = id, id, job.KindCancellation
	accept(t, db, cancellation)
	cancellation.ID = uuidv7.New()
	var b pgx.Batch
	campaign.QueueCancel(&b, id, "operator:ops", "a test", false)
	servers.NoError(t, db.SendBatch(t.Context(), &b).Close())
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
	known, shared := request("known", "a"), request("shared", "a")
	accept(t, db, known)
	requests := []job.Request{request("known", "a"), request("unknown", "a"), request("known", "b"), request("shared", "a")}
	full := errors.New("too many wait")
	done, messages, err := job.AcceptRefused(t.Context(), db, requests, []error{full, full, full, full})
	if told := toldOf(append(requests, known), done); told != "5 replayed, too many wait, 5 reused, too many wait" || len(messages) > 0 || err != nil {
		t.Errorf("%s; messages: %v, %v", told, messages, err)
	}
	requests = append(requests, known, shared, request("new", "a"))
	done, messages, err = job.AcceptRefused(t.Context(), db, requests, []error{full, full, full, full, nil, nil, nil})
	if told := toldOf(requests, done); told != "5 replayed, too many wait, 5 reused, 6 replayed, 5, 6, 7" || sizes(messages) != "purchase 2" || err != nil {
		t.Errorf("%s; messages: %s, %v", told, sizes(messages), err)
	}
}

// Of two requests with one key the first may be of a closed campaign: neither makes a job, and no
// other request of the batch is held up.
func TestAKeyOfAClosedCampaignHoldsUpNoOtherRequest(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	closed, open := fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3))
	fixture.SellOut(t, db, closed)
	requests := []job.Request{request("one", "a"), request("one", "b"), request("another", "a")}
	for i, id := range []uuid.UUID{closed, open, open} {
		requests[i].CampaignID = id
	}
	if told, messages := accept(t, db, requests...); told != job.ErrClosed.Error()+", "+job.ErrClosed.Error()+", 3" || messages != "purchase 1" {
		t.Errorf("%s; messages: %s", told, messages)
	}
}

// The job is there, and its commit may not have waited for the standby: the answer waits for a later one that does.
func TestARepeatedRequestWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	db := servers.Pool(t, servers.OwnPostgres(t))
	servers.NoError(t, schema.Migrate(t.Context(), db))
	accept(t, db, request("k", "a"))
	servers.AwaitNobody(t, db)
	answer := make(chan []job.Accepted, 1)
	go func() {
		done, _, _ := job.Accept(context.Background(), db, []job.Request{request("k", "a")})
		answer <- done
	}()
	servers.AwaitCommit(t, db, true)
	servers.NameStandby(t, db, "") // then nothing waits
	if done := <-answer; len(done) != 1 || !done[0].Replayed {
		t.Errorf("got %+v", done)
	}
}
