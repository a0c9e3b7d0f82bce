//go:build soak

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestRedisRestartedInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true, Workers: 2})
	id := s.Campaign(20)
	run := queueUp(s, id, 20, 15)
	run.underWay()
	if err := s.Stack.Redis.RestartAfter(context.Background(), time.Second); err != nil {
		t.Fatal(err)
	}
	run.wg.Wait()
	servers.Eventually(t, "every job is final", run.final)
	if run.refused[http.StatusServiceUnavailable] > 0 {
		t.Errorf("requests were refused while Redis was away: %v", run.refused)
	}
	run.expectSoldOut(210)
}

func TestDuringAnOutageOfPostgresRequestsAreToldToRetry(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	id := s.Campaign(4)
	before := s.Buy(fleet.Order{Campaign: id, User: "a", Key: "before", Wait: true})
	if before.State != job.Succeeded {
		t.Fatal(before)
	}
	if err := s.Stack.Postgres.Stop(); err != nil {
		t.Fatal(err)
	}
	during := s.Buy(fleet.Order{Campaign: id, User: "b", Key: "during"})
	if during.Status != http.StatusServiceUnavailable || during.Refusal() != "unavailable" || during.Header.Get("Retry-After") == "" {
		t.Errorf("got %v, Retry-After %q", during, during.Header.Get("Retry-After"))
	}
	servers.Eventually(t, "the api is not ready", func() bool { // it looks once a second
		return s.Do(0, "", http.MethodGet, "/readyz", nil, nil).Status == http.StatusServiceUnavailable
	})
	if alive := s.Do(0, "", http.MethodGet, "/healthz", nil, nil); alive.Status != http.StatusOK {
		t.Errorf("healthz: %v", alive)
	}
	if err := s.Stack.Postgres.RestartAfter(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	var after fleet.Answer
	servers.Eventually(t, "the same key goes through", func() bool {
		after = s.Buy(fleet.Order{Campaign: id, User: "b", Key: "during", Wait: true})
		return after.Status == http.StatusOK
	})
	if after.State != job.Succeeded {
		t.Errorf("got %v", after)
	}
}

func TestDuringAnOutageOfRedisRequestsAreAcceptedAndDoneLater(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	id := s.Campaign(4)
	if err := s.Stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	answers := s.Crowd(8, func(i int) fleet.Order { return fleet.Order{Campaign: id, User: fmt.Sprint(i), Key: fmt.Sprint(i)} })
	for i, a := range answers {
		if a.Status != http.StatusAccepted || a.State != job.Queued {
			t.Fatalf("order %d: %v", i, a)
		}
	}
	ready := s.Do(0, "", http.MethodGet, "/readyz", nil, nil)
	if ready.Status != http.StatusOK || string(ready.State) == "" && !fleet.Contains(ready.Body, `"degraded"`) {
		t.Errorf("readyz: %s", ready.Body)
	}
	waiting := make(chan fleet.Answer, 1)
	go func() { waiting <- s.Buy(fleet.Order{Campaign: id, User: "waits", Wait: true}) }()
	if err := s.Stack.Redis.RestartAfter(context.Background(), time.Second); err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		servers.Eventually(t, "the job is done", func() bool { return s.Job(a.ID).State == job.Succeeded })
		if again := s.Buy(fleet.Order{Campaign: id, User: fmt.Sprint(i), Key: fmt.Sprint(i)}); again.ID != a.ID {
			t.Errorf("the key now has another job: %v", again)
		}
	}
	if a := <-waiting; a.State != job.Succeeded {
		t.Errorf("who waited through the outage got %v", a)
	}
}

func TestAWaitEndsWithoutRedis(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true, Workers: -1})
	id := s.Campaign(4)
	waiting := make(chan fleet.Answer, 1)
	go func() { waiting <- s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true}) }()
	servers.Eventually(t, "the job is accepted", func() bool {
		var n int
		_ = s.DB.QueryRow(t.Context(), `SELECT count(*) FROM jobs`).Scan(&n)
		return n == 1
	})
	if err := s.Stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	// It is settled as by a worker that can no longer announce it.
	fleet.FinalizeAll(t, s)
	if a := <-waiting; a.State != job.Succeeded {
		t.Errorf("got %v", a)
	}
	if err := s.Stack.Redis.RestartAfter(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
}
