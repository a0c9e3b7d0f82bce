package e2e

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"triprize/internal/store/job"
)

func TestRedisEmptiedInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := start(t, options{private: true, workers: 2})
	id := s.campaign(20)
	run := s.openSale(id, 20, 15)
	for _, sold := range []int{10, 60, 120} {
		eventually(t, 20*time.Second, "the sale goes on", func() bool { return s.campaignNow(id).Counts.Sold > sold })
		if err := s.rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	run.wg.Wait()
	eventually(t, 30*time.Second, "every job is final", run.final)
	run.expectSoldOut(210)
}

func TestRedisRestartedInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := start(t, options{private: true, workers: 2})
	id := s.campaign(20)
	run := s.openSale(id, 20, 15)
	eventually(t, 20*time.Second, "the sale is under way", func() bool { return s.campaignNow(id).Counts.Sold > 20 })
	if err := s.stack.Redis.RestartAfter(context.Background(), time.Second); err != nil {
		t.Fatal(err)
	}
	run.wg.Wait()
	eventually(t, 40*time.Second, "every job is final", run.final)
	if run.refused[http.StatusServiceUnavailable] > 0 {
		t.Errorf("requests were refused while Redis was away: %v", run.refused)
	}
	run.expectSoldOut(210)
}

func TestPostgresRestartedInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	s := start(t, options{private: true, workers: 2})
	id := s.campaign(20)
	run := s.openSale(id, 20, 15)
	eventually(t, 20*time.Second, "the sale is under way", func() bool { return s.campaignNow(id).Counts.Sold > 20 })
	if err := s.stack.Postgres.RestartAfter(context.Background(), 2*time.Second); err != nil {
		t.Fatal(err)
	}
	run.wg.Wait()
	eventually(t, 40*time.Second, "every job is final", run.final)
	run.expectSoldOut(210)
}

func TestDuringAnOutageOfPostgresRequestsAreToldToRetry(t *testing.T) {
	t.Parallel()
	s := start(t, options{private: true})
	id := s.campaign(4)
	before := s.buy(order{campaign: id, user: "a", key: "before", wait: 20})
	if before.State != job.Succeeded {
		t.Fatal(before)
	}
	if err := s.stack.Postgres.Stop(); err != nil {
		t.Fatal(err)
	}
	during := s.buy(order{campaign: id, user: "b", key: "during"})
	if during.status != http.StatusServiceUnavailable || during.code() != "unavailable" || during.header.Get("Retry-After") == "" {
		t.Errorf("got %v, Retry-After %q", during, during.header.Get("Retry-After"))
	}
	if ready := s.do(0, "", http.MethodGet, "/readyz", nil, nil); ready.status != http.StatusServiceUnavailable {
		t.Errorf("readyz: %v", ready)
	}
	if alive := s.do(0, "", http.MethodGet, "/healthz", nil, nil); alive.status != http.StatusOK {
		t.Errorf("healthz: %v", alive)
	}
	if err := s.stack.Postgres.RestartAfter(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	var after answer
	eventually(t, 20*time.Second, "the same key goes through", func() bool {
		after = s.buy(order{campaign: id, user: "b", key: "during", wait: 10})
		return after.status == http.StatusOK
	})
	if after.State != job.Succeeded {
		t.Errorf("got %v", after)
	}
}

func TestDuringAnOutageOfRedisRequestsAreAcceptedAndDoneLater(t *testing.T) {
	t.Parallel()
	s := start(t, options{private: true})
	id := s.campaign(4)
	if err := s.stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	answers := s.crowd(8, func(i int) order { return order{campaign: id, user: fmt.Sprint(i), key: fmt.Sprint(i)} })
	for i, a := range answers {
		if a.status != http.StatusAccepted || a.State != job.Queued {
			t.Fatalf("order %d: %v", i, a)
		}
	}
	ready := s.do(0, "", http.MethodGet, "/readyz", nil, nil)
	if ready.status != http.StatusOK || string(ready.State) == "" && !contains(ready.body, `"degraded"`) {
		t.Errorf("readyz: %s", ready.body)
	}
	waiting := make(chan answer, 1)
	go func() { waiting <- s.buy(order{campaign: id, user: "waits", wait: 30}) }()
	if err := s.stack.Redis.RestartAfter(context.Background(), time.Second); err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		eventually(t, 30*time.Second, "the job is done", func() bool { return s.job(a.ID).State == job.Succeeded })
		if again := s.buy(order{campaign: id, user: fmt.Sprint(i), key: fmt.Sprint(i)}); again.ID != a.ID {
			t.Errorf("the key now has another job: %v", again)
		}
	}
	if a := <-waiting; a.State != job.Succeeded {
		t.Errorf("who waited through the outage got %v", a)
	}
}

func TestAWaitEndsWithoutRedis(t *testing.T) {
	t.Parallel()
	s := start(t, options{private: true})
	id := s.campaign(4)
	// The worker gets the task before Redis goes, and settles it after.
	s.Workers[0].Signal(syscall.SIGSTOP) //nolint:errcheck // seen by its effect
	waiting := make(chan answer, 1)
	go func() { waiting <- s.buy(order{campaign: id, user: "a", wait: 30}) }()
	eventually(t, 20*time.Second, "the job is accepted", func() bool {
		var n int
		_ = s.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs`).Scan(&n)
		return n == 1
	})
	if err := s.stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	// Settle it by hand, as a worker would that can no longer announce it.
	settleAll(t, s)
	if a := <-waiting; a.State != job.Succeeded {
		t.Errorf("got %v", a)
	}
	if err := s.stack.Redis.RestartAfter(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
}
