package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/idempotency"
	"triprize/internal/store/job"
)

// purchases counts the purchases of a campaign.
func (s *system) purchases(campaign uuid.UUID) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(s.t.Context(), `SELECT count(*) FROM purchases WHERE campaign_id = $1`, campaign).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func TestOneKeyFiftyTimesInParallelIsOnePurchase(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: 2})
	id := s.campaign(20)
	answers := s.crowd(50, func(i int) order {
		return order{campaign: id, user: "a", key: "the same", wait: 30, api: i}
	})
	replayed := 0
	for i, a := range answers {
		if a.status != http.StatusOK || a.ID != answers[0].ID || !bytes.Equal(a.body, answers[0].body) {
			t.Errorf("request %d: %v\n%s\n%s", i, a, a.body, answers[0].body)
		}
		if a.header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	if replayed != 49 {
		t.Errorf("%d of 50 answers say that they are replays", replayed)
	}
	if n := s.purchases(id); n != 1 {
		t.Errorf("%d purchases", n)
	}
}

func TestTwoAPIsThatInsertTheSameKeysInOppositeOrder(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2})
	id := s.campaign(20)
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
				a := s.buy(order{campaign: id, user: fmt.Sprint(key), key: fmt.Sprint(key), api: side})
				if a.status != http.StatusAccepted {
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
	eventually(t, 20*time.Second, "every job is settled", func() bool { return s.purchases(id) == keys })
}

func TestAKeyIsRefusedToAnotherRequest(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	id, other := s.campaign(20), s.campaign(20)
	first := s.buy(order{campaign: id, user: "a", key: "k", wait: 20})
	if first.State != job.Succeeded {
		t.Fatal(first)
	}
	for name, o := range map[string]order{
		"another quantity": {campaign: id, user: "a", key: "k", quantity: 2},
		"another user":     {campaign: id, user: "b", key: "k"},
		"another campaign": {campaign: other, user: "a", key: "k"},
	} {
		if a := s.buy(o); a.status != http.StatusUnprocessableEntity || a.code() != "idempotency-key-reused" {
			t.Errorf("%s: %v", name, a)
		}
	}
	// The same body in other words is the same request.
	again := s.do(0, s.app, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Idempotency-Key": `"k"`}, rawJSON(
		`{"payment": {"reference":"ref-a" ,"method":"external"},  "selection":{"quantity":1.0}, "user_id":"\u0061"}`))
	if again.status != http.StatusAccepted || again.ID != first.ID {
		t.Errorf("the same request in other words: %v", again)
	}
	// Keys belong to their client.
	if a := s.do(0, s.operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Idempotency-Key": "k", "Prefer": "wait=20"}, rawJSON(
		`{"payment":{"method":"external"},"selection":{"quantity":1},"user_id":"b"}`)); a.State != job.Succeeded || a.ID == first.ID {
		t.Errorf("another client's key k: %v", a)
	}
}

func TestAKeyWhoseRedisRecordIsGoneIsStillOnePurchase(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	id := s.campaign(4)
	first := s.buy(order{campaign: id, user: "a", key: "k", wait: 20})
	keys, err := s.rdb.Keys(t.Context(), s.settings.Redis.Namespace+":request:*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("records in Redis: %v, %v", keys, err)
	}
	if err := s.rdb.Del(t.Context(), keys...).Err(); err != nil {
		t.Fatal(err)
	}
	again := s.buy(order{campaign: id, user: "a", key: "k", wait: 20})
	if again.ID != first.ID || s.purchases(id) != 1 {
		t.Errorf("%v, then %v; %d purchases", first, again, s.purchases(id))
	}
}

func TestARecordOfAnAPIThatDiedBeforeItsCommitIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	id := s.campaign(4)
	requests := idempotency.NewRequests(s.rdb, s.settings.Redis.Namespace, s.settings.Idempotency, nil)
	defer requests.Close()
	for _, record := range []idempotency.Record{
		{State: idempotency.InProgress, Job: uuid.New()},                                        // of a job that never came to be
		{State: idempotency.InProgress, Job: uuid.New(), Hash: [32]byte{1}},                     // and of another request
		{State: idempotency.Success, Job: uuid.New(), Hash: [32]byte{2}, Answer: []byte(`{ }`)}, // even a final one, of another request
	} {
		key := uuid.NewString()
		err := requests.Remember(t.Context(), map[idempotency.Request]idempotency.Record{{Client: "shop", Key: key}: record})
		if err != nil {
			t.Fatal(err)
		}
		a := s.buy(order{campaign: id, user: "a", key: key, wait: 20})
		if a.State != job.Succeeded || a.ID == record.Job {
			t.Errorf("with the record %+v: %v", record, a)
		}
	}
	if n := s.purchases(id); n != 3 {
		t.Errorf("%d purchases for 3 keys", n)
	}
}

func TestAReplayIsAnsweredFromRedisWithoutPostgres(t *testing.T) {
	t.Parallel()
	s := start(t, options{private: true})
	id := s.campaign(4)
	first := s.buy(order{campaign: id, user: "a", key: "k", wait: 20})
	s.buy(order{campaign: id, user: "a", key: "k"}) // the first replay lets Redis know how it ended
	record := s.settings.Redis.Namespace + ":request:*"
	eventually(t, 5*time.Second, "Redis has the answer", func() bool {
		keys, _ := s.rdb.Keys(t.Context(), record).Result()
		if len(keys) != 1 {
			return false
		}
		value, _ := s.rdb.Get(t.Context(), keys[0]).Result()
		return contains([]byte(value), string(idempotency.Success))
	})
	if err := s.stack.Postgres.Stop(); err != nil {
		t.Fatal(err)
	}
	if a := s.buy(order{campaign: id, user: "a", key: "k"}); a.ID != first.ID || a.State != job.Succeeded {
		t.Errorf("got %v", a)
	}
	if err := s.stack.Postgres.RestartAfter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}
