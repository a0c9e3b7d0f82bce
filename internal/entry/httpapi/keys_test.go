package httpapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/platform/idempotency"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestOneKeyFiftyTimesInParallelIsOnePurchase(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(20)
	answers := s.Crowd(50, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: "a", Key: "the same", Wait: true, API: i}
	})
	replayed := 0
	for i, a := range answers {
		if a.Status != http.StatusOK || a.ID != answers[0].ID || !bytes.Equal(a.Body, answers[0].Body) {
			t.Errorf("request %d: %v\n%s\n%s", i, a, a.Body, answers[0].Body)
		}
		if a.Header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	if replayed != 49 {
		t.Errorf("%d of 50 answers say that they are replays", replayed)
	}
	if n := s.Purchases(id); n != 1 {
		t.Errorf("%d purchases", n)
	}
}

func TestTwoAPIsThatInsertTheSameKeysInOppositeOrder(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(20)
	const keys = 150
	jobs := [2][keys]uuid.UUID{}
	var wg sync.WaitGroup
	for side := range 2 {
		for i := range keys {
			wg.Go(func() {
				key := i
				if side == 1 {
					key = keys - 1 - i
				}
				a := s.Buy(fleet.Order{Campaign: id, User: fmt.Sprint(key), Key: fmt.Sprint(key), API: side})
				if a.Status != http.StatusAccepted {
					t.Errorf("key %d: %v", key, a)
				}
				jobs[side][key] = a.ID
			})
		}
	}
	wg.Wait()
	for key := range keys {
		if jobs[0][key] != jobs[1][key] {
			t.Errorf("key %d has the jobs %s and %s", key, jobs[0][key], jobs[1][key])
		}
	}
	servers.Eventually(t, "every job is settled", func() bool { return s.Purchases(id) == keys })
}

func TestAKeyIsRefusedToAnotherRequest(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id, other := s.Campaign(20), s.Campaign(20)
	first := s.Buy(fleet.Order{Campaign: id, User: "a", Key: "k", Wait: true})
	if first.State != job.Succeeded {
		t.Fatal(first)
	}
	for name, o := range map[string]fleet.Order{
		"another quantity": {Campaign: id, User: "a", Key: "k", Quantity: 2},
		"another user":     {Campaign: id, User: "b", Key: "k"},
		"another campaign": {Campaign: other, User: "a", Key: "k"},
	} {
		if a := s.Buy(o); a.Status != http.StatusUnprocessableEntity || a.Refusal() != "idempotency-key-reused" {
			t.Errorf("%s: %v", name, a)
		}
	}
	// The same body in other words is the same request.
	again := s.Do(0, s.App, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Idempotency-Key": `"k"`}, fleet.RawJSON(
		`{"payment": {"reference":"ref-a" ,"method":"external"},  "selection":{"quantity":1.0}, "user_id":"\u0061"}`))
	if again.Status != http.StatusAccepted || again.ID != first.ID {
		t.Errorf("the same request in other words: %v", again)
	}
	// Keys belong to their client.
	if a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Idempotency-Key": "k", "Prefer": fleet.UntilFinal}, fleet.RawJSON(
		`{"payment":{"method":"external"},"selection":{"quantity":1},"user_id":"b"}`)); a.State != job.Succeeded || a.ID == first.ID {
		t.Errorf("another client's key k: %v", a)
	}
}

func TestARecordOfAnotherRequestIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(4)
	requests := idempotency.NewRequests(s.Redis, s.Settings.Redis.Namespace, s.Settings.Draw.SecretKey, s.Settings.Idempotency, nil)
	defer requests.Close()
	key, record := uuid.NewString(), idempotency.Record{State: idempotency.Success, Job: uuid.New(), Hash: [32]byte{2}, Answer: []byte(`{ }`)}
	if err := requests.Remember(t.Context(), map[idempotency.Request]idempotency.Record{{Client: s.Client("shop"), Key: key}: record}); err != nil {
		t.Fatal(err)
	}
	if a := s.Buy(fleet.Order{Campaign: id, User: "a", Key: key, Wait: true}); a.State != job.Succeeded || a.ID == record.Job || s.Purchases(id) != 1 {
		t.Errorf("%v; %d purchases", a, s.Purchases(id))
	}
}

// An answer that is remembered too early would be repeated for minutes after the end.
func TestARepetitionDuringTheWorkIsNotRemembered(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	id := s.Campaign(4)
	order := fleet.Order{Campaign: id, User: "a", Key: "k"}
	first := s.Buy(order)
	if again := s.Buy(order); again.ID != first.ID || again.Status != http.StatusAccepted {
		t.Fatalf("%v, then %v", first, again)
	}
	s.RunWorker()
	servers.Eventually(t, "the job is final", func() bool {
		return s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+first.ID.String(), nil, nil).State == job.Succeeded
	})
	if a := s.Buy(order); a.ID != first.ID || a.State != job.Succeeded {
		t.Errorf("after its end: %v", a)
	}
}

func TestAReplayIsAnsweredFromRedisWithoutPostgres(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	id := s.Campaign(4)
	first := s.Buy(fleet.Order{Campaign: id, User: "a", Key: "k", Wait: true})
	s.Buy(fleet.Order{Campaign: id, User: "a", Key: "k"}) // the first replay lets Redis know how it ended
	record := s.Settings.Redis.Namespace + ":request:*"
	servers.Eventually(t, "Redis has the answer", func() bool {
		keys, _ := s.Redis.Keys(t.Context(), record).Result()
		if len(keys) != 1 {
			return false
		}
		value, _ := s.Redis.Get(t.Context(), keys[0]).Result()
		return fleet.Contains([]byte(value), string(idempotency.Success))
	})
	if err := s.Stack.Postgres.Stop(); err != nil {
		t.Fatal(err)
	}
	if a := s.Buy(fleet.Order{Campaign: id, User: "a", Key: "k"}); a.ID != first.ID || a.State != job.Succeeded {
		t.Errorf("got %v", a)
	}
	if err := s.Stack.Postgres.RestartAfter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}
