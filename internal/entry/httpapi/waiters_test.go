package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// subscribed is a line of CLIENT LIST of a connection that listens to anything.
var subscribed = regexp.MustCompile(`(?m) (?:sub|psub|ssub)=[1-9]`)

// Each process has its own tap, so that a query too many is its own.
func TestTwoThousandWaitersCostAProcessOneSubscriptionOrOneQueryAtATime(t *testing.T) {
	t.Parallel()
	const (
		apis    = 2
		waiting = 500 // requests and as many streams, per process
		jobs    = 250
		poll    = 250 * time.Millisecond // api.wait_poll_interval
		seldom  = 8                      // of these pass between two reads while Redis announces
		read    = "LATERAL (SELECT * FROM jobs WHERE id = i.id)"
	)
	s := fleet.Start(t, fleet.Options{Binaries: true, Private: true, APIs: 1, Workers: -1, Schedulers: -1})
	s.URLs = nil // the one without a tap is not asked
	taps := make([]*fleet.Tap, apis)
	for i := range taps {
		taps[i] = fleet.NewTap(t, s.Settings.Postgres.URL)
		s.RunAPI("TRIPRIZE_POSTGRES_URL=" + taps[i].URL)
	}
	id := s.Campaign(30)
	accepted := s.Crowd(jobs, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: fmt.Sprint(i), Key: fmt.Sprint(i), API: i}
	})

	var posts sync.WaitGroup
	answers := make([]fleet.Answer, apis*waiting)
	listeners := make([]*fleet.Listener, apis*waiting)
	for i := range answers {
		posts.Go(func() {
			for answers[i].Status = http.StatusServiceUnavailable; answers[i].Status == http.StatusServiceUnavailable; { // a busy process says so
				answers[i] = s.AwaitJob(i%apis, accepted[i%jobs].ID)
			}
		})
	}
	for i := range listeners {
		listen := func() bool {
			listeners[i] = s.Listen(i%apis, s.App, fleet.JobEvents(accepted[i%jobs].ID), "")
			return listeners[i].Status != http.StatusServiceUnavailable
		}
		servers.Eventually(t, "the stream is open", listen)
	}
	for i := range apis {
		s.AwaitMetric(i, "triprize_streams_open", waiting)
		s.AwaitMetric(i, "triprize_http_requests_in_flight", waiting)
	}
	clients, err := s.Redis.ClientList(t.Context()).Result()
	if n := len(subscribed.FindAllString(clients, -1)); err != nil || n != apis+1 {
		t.Errorf("%d connections to Redis are subscribed, %v: want one of each api", n, err)
	}
	count := func(every time.Duration, what string) {
		t.Helper()
		before, begun := make([]int, apis), time.Now()
		for i := range taps {
			before[i] = taps[i].Count(read)
		}
		servers.Eventually(t, "reads "+what, func() bool { return taps[0].Count(read) >= before[0]+3 && taps[1].Count(read) >= before[1]+3 })
		for i := range taps {
			n, most := taps[i].Count(read)-before[i], int(time.Since(begun)/every)+2
			if n > most {
				t.Errorf("%s api %d read jobs %d times in %s, at most %d were to be", what, i, n, time.Since(begun), most)
			}
		}
	}
	count(seldom*poll, "with Redis")
	if err := s.Stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	count(poll, "without Redis")

	fleet.FinalizeAll(t, s)
	posts.Wait()
	for i, a := range answers {
		if a.Status != http.StatusOK || a.State != job.Succeeded || a.ID != accepted[i%jobs].ID {
			t.Fatalf("request %d got %v", i, a)
		}
	}
	for i, l := range listeners {
		if f := l.WantEvent(); f.ID != "queued" {
			t.Fatalf("stream %d: %+v", i, f)
		}
		if f := l.WantEvent(); f.ID != "succeeded" {
			t.Fatalf("stream %d: %+v", i, f)
		}
		l.WantEnd()
	}
	for i := range apis {
		s.AwaitMetric(i, "triprize_jobs_waited_for", 0)
	}
	if err := s.Stack.Redis.RestartAfter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

// Requests that wait for a job take no turn of those that read.
func TestWaitsForAJobLeaveReadsToOthers(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	id := s.Campaign(3)
	open := s.Buy(fleet.Order{Campaign: id, User: "mina"})
	const waiting = 20 // there are ten connections
	var group sync.WaitGroup
	for range waiting {
		group.Go(func() {
			if a := s.AwaitJob(0, open.ID); a.State != job.Succeeded {
				t.Errorf("a wait: %v", a)
			}
		})
	}
	for range 10 * waiting {
		if a := s.Do(0, s.App, http.MethodGet, "/v1/purchases?reference=none", nil, nil); a.Status != http.StatusOK {
			t.Fatalf("a read beside the waits: %v", a)
		}
	}
	s.RunWorker()
	group.Wait()
}
