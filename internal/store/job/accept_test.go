package job_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// request is a request of the client "shop" with a hash of its own content.
func request(key, content string) job.Request {
	return job.Request{ID: job.NewID(), Client: "shop", Key: key, Hash: sha256.Sum256([]byte(content)), Kind: job.KindPurchase,
		CampaignID: uuid.New(), UserID: "u", Payload: []byte(`{}`), Keep: time.Hour}
}

func TestEqualKeysOfOneFlushAreOneJob(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	first, same, other := request("k", "a"), request("k", "a"), request("k", "b")
	accepted, rings, err := job.Accept(t.Context(), db, []job.Request{first, request("l", "a"), same, other})
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
	if len(rings) != 1 || len(rings[0].Jobs) != 2 {
		t.Errorf("rings: %+v", rings)
	}
}

func TestAKnownKeyGetsItsJobAsItIsNow(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	first := request("k", "a")
	if _, _, err := job.Accept(t.Context(), db, []job.Request{first}); err != nil {
		t.Fatal(err)
	}
	if _, err := job.GiveUp(t.Context(), db, []uuid.UUID{first.ID}, job.Problem{Code: "internal-error", Detail: "d"}); err != nil {
		t.Fatal(err)
	}
	accepted, rings, err := job.Accept(t.Context(), db, []job.Request{request("k", "a"), request("new", "a")})
	if err != nil {
		t.Fatal(err)
	}
	if a := accepted[0]; !a.Replayed || a.Job.ID != first.ID || a.Job.State != job.Failed || a.Job.Problem.Code != "internal-error" {
		t.Errorf("got %+v", a)
	}
	if len(rings) != 1 || len(rings[0].Jobs) != 1 {
		t.Errorf("a job that was there already is rung for: %+v", rings)
	}
	var jobs int
	if err := db.QueryRow(t.Context(), `SELECT cardinality(jobs) FROM rings WHERE id = $1`, rings[0].ID).Scan(&jobs); err != nil || jobs != 1 {
		t.Errorf("the outbox has %d jobs in the ring, %v", jobs, err)
	}
}

func TestManyProcessesAcceptTheSameKeysInAnyOrder(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	const keys, processes = 40, 6
	jobs := [processes][keys]uuid.UUID{}
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			var requests []job.Request
			for i := range keys {
				key := (i*7 + p*11) % keys // another order in every process
				requests = append(requests, request(fmt.Sprint(key), "a"))
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
	db := fixture.DB(t)
	mine, theirs := request("k", "a"), request("k", "b")
	theirs.Client = "another shop"
	accepted, _, err := job.Accept(t.Context(), db, []job.Request{mine, theirs})
	if err != nil {
		t.Fatal(err)
	}
	if accepted[1].Reused || accepted[1].Job.ID != theirs.ID {
		t.Errorf("got %+v", accepted[1])
	}
}

func TestEachKindHasARingOfItsOwn(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	purchase, draw := request("p", "a"), request("d", "a")
	draw.Kind = job.KindDraw
	_, rings, err := job.Accept(t.Context(), db, []job.Request{purchase, draw})
	if err != nil || len(rings) != 2 || rings[0].Kind == rings[1].Kind {
		t.Errorf("%+v, %v", rings, err)
	}
	for _, ring := range rings {
		task, err := ring.Task()
		if err != nil {
			t.Fatal(err)
		}
		back, err := job.RingOf(task)
		if err != nil || back.ID != ring.ID || back.Kind != ring.Kind || back.Number != 1 || len(back.Jobs) != 1 || back.Jobs[0] != ring.Jobs[0] {
			t.Errorf("%+v became %+v, %v", ring, back, err)
		}
	}
}
