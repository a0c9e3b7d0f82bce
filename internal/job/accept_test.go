package job_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// request is a request of the client "shop" with a hash of its own content.
func requestOutbox(key, content string) job.Request {
	return job.Request{ID: uuidv7.New(), Client: "shop", Key: key, Hash: sha256.Sum256([]byte(content)), Kind: job.KindPurchase,
		CampaignID: uuid.New(), UserID: "u", Payload: []byte(`{}`), Keep: time.Hour}
}

func TestEqualKeysOfOneFlushAreOneJob(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	first, same, other := requestOutbox("k", "a"), requestOutbox("k", "a"), requestOutbox("k", "b")
	accepted, messages, err := job.Accept(t.Context(), db, []job.Request{first, requestOutbox("l", "a"), same, other})
	if err != nil {
		t.Fatal(err)
	}
	if accepted[0].Replayed || accepted[0].Job.ID != first.ID {
		t.Errorf("the first: %+v", accepted[0])
	}
	if !accepted[2].Replayed || accepted[2].Reused || accepted[2].Job.ID != first.ID {
		t.Errorf("the same again: %+v", accepted[2])
	}
	if !accepted[3].Reused || accepted[3].Job.ID != first.ID {
		t.Errorf("another request: %+v", accepted[3])
	}
	if len(messages) != 1 || len(messages[0].Jobs) != 2 {
		t.Errorf("messages: %+v", messages)
	}
}

func TestAKnownKeyGetsItsJobAsItIsNow(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	first := requestOutbox("k", "a")
	if _, _, err := job.Accept(t.Context(), db, []job.Request{first}); err != nil {
		t.Fatal(err)
	}
	if _, err := job.GiveUp(t.Context(), db, []uuid.UUID{first.ID}, job.Problem{Code: "internal-error", Detail: "d"}); err != nil {
		t.Fatal(err)
	}
	accepted, messages, err := job.Accept(t.Context(), db, []job.Request{requestOutbox("k", "a"), requestOutbox("new", "a")})
	if err != nil {
		t.Fatal(err)
	}
	if a := accepted[0]; !a.Replayed || a.Job.ID != first.ID || a.Job.State != job.Failed || a.Job.Problem.Code != "internal-error" {
		t.Errorf("got %+v", a)
	}
	if len(messages) != 1 || len(messages[0].Jobs) != 1 {
		t.Errorf("a message for a job that was there already: %+v", messages)
	}
	var jobs int
	if err := db.QueryRow(t.Context(), `SELECT cardinality(jobs) FROM outbox_messages WHERE id = $1`, messages[0].ID).Scan(&jobs); err != nil || jobs != 1 {
		t.Errorf("the outbox has %d jobs in the message, %v", jobs, err)
	}
}

func TestRequestsThatAreAcceptedAgainGetNoSecondMessage(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	requests := []job.Request{requestOutbox("k", "a"), requestOutbox("l", "a")}
	for range 2 { // as after a commit whose answer was lost
		if _, _, err := job.Accept(t.Context(), db, requests); err != nil {
			t.Fatal(err)
		}
	}
	requests = append(requests, requestOutbox("m", "a"))
	if _, messages, err := job.Accept(t.Context(), db, requests); err != nil || len(messages) != 1 || len(messages[0].Jobs) != 1 {
		t.Errorf("for the new one: %+v, %v", messages, err)
	}
	var messages, jobs int
	if err := db.QueryRow(t.Context(), `SELECT count(*), sum(cardinality(jobs)) FROM outbox_messages`).Scan(&messages, &jobs); err != nil || messages != 2 || jobs != 3 {
		t.Errorf("%d messages for %d jobs, %v; want 2 for 3", messages, jobs, err)
	}
}

func TestManyProcessesAcceptTheSameKeysInAnyOrder(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	const keys, processes = 40, 6
	jobs := [processes][keys]uuid.UUID{}
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			var requests []job.Request
			for i := range keys {
				key := (i*7 + p*11) % keys // another order in every process
				requests = append(requests, requestOutbox(fmt.Sprint(key), "a"))
			}
			accepted, _, err := job.Accept(t.Context(), db, requests)
			if err != nil {
				t.Errorf("process %d: %v", p, err)
				return
			}
			for i, a := range accepted {
				jobs[p][(i*7+p*11)%keys] = a.Job.ID
			}
		})
	}
	wg.Wait()
	for key := range keys {
		for p := range processes {
			if jobs[p][key] != jobs[0][key] || jobs[p][key] == uuid.Nil {
				t.Errorf("key %d: process %d got job %s, process 0 %s", key, p, jobs[p][key], jobs[0][key])
			}
		}
	}
	fixture.Sound(t, db) // every queued job is in the outbox
}

func TestAKeyBelongsToItsClient(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	mine, theirs := requestOutbox("k", "a"), requestOutbox("k", "b")
	theirs.Client = "another shop"
	accepted, _, err := job.Accept(t.Context(), db, []job.Request{mine, theirs})
	if err != nil {
		t.Fatal(err)
	}
	if accepted[1].Reused || accepted[1].Job.ID != theirs.ID {
		t.Errorf("got %+v", accepted[1])
	}
}

func TestEachKindHasAMessageOfItsOwn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	purchase, draw := requestOutbox("p", "a"), requestOutbox("d", "a")
	draw.Kind = job.KindDraw
	_, messages, err := job.Accept(t.Context(), db, []job.Request{purchase, draw})
	if err != nil || len(messages) != 2 || messages[0].Kind == messages[1].Kind {
		t.Errorf("%+v, %v", messages, err)
	}
	for _, m := range messages {
		back, err := job.MessageOf(m.Task())
		if err != nil || back.ID != m.ID || back.Kind != m.Kind || back.Delivery != 1 || len(back.Jobs) != 1 || back.Jobs[0] != m.Jobs[0] {
			t.Errorf("%+v became %+v, %v", m, back, err)
		}
	}
}
