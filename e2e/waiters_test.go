package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
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
	s := start(t, options{private: true, apis: 1, workers: -1, schedulers: -1})
	s.urls = nil // the one without a tap is not asked
	taps := make([]*tap, apis)
	for i := range taps {
		taps[i] = newTap(t, s.settings.Postgres.URL)
		s.startAPI("TRIPRIZE_POSTGRES_URL="+taps[i].url, "TRIPRIZE_API_MAX_WAIT=3m")
	}
	id := s.campaign(30)
	accepted := s.crowd(jobs, func(i int) order { return order{campaign: id, user: fmt.Sprint(i), key: fmt.Sprint(i), api: i} })

	var posts sync.WaitGroup
	answers := make([]answer, apis*waiting)
	listeners := make([]*listener, apis*waiting)
	for i := range answers {
		posts.Go(func() {
			answers[i] = s.awaitJob(i%apis, accepted[i%jobs].ID)
		})
	}
	for i := range listeners {
		listeners[i] = s.listen(i%apis, s.app, jobEvents(accepted[i%jobs].ID), "")
	}
	for i := range apis {
		s.awaitMetric(i, "triprize_streams_open", waiting)
		s.awaitMetric(i, "triprize_http_requests_in_flight", waiting+1) // the last is this question
	}
	clients, err := s.rdb.ClientList(t.Context()).Result()
	if n := len(subscribed.FindAllString(clients, -1)); err != nil || n != apis+1 {
		t.Errorf("%d connections to Redis are subscribed, %v: want one of each api", n, err)
	}
	count := func(every time.Duration, what string) {
		t.Helper()
		before, begun := make([]int, apis), time.Now()
		for i := range taps {
			before[i] = taps[i].count(read)
		}
		eventually(t, time.Minute, "reads "+what, func() bool { return taps[0].count(read) >= before[0]+3 && taps[1].count(read) >= before[1]+3 })
		for i := range taps {
			n, most := taps[i].count(read)-before[i], int(time.Since(begun)/every)+2
			if n > most {
				t.Errorf("%s api %d read jobs %d times in %s, at most %d were to be", what, i, n, time.Since(begun), most)
			}
		}
	}
	count(seldom*poll, "with Redis")
	if err := s.stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	count(poll, "without Redis")

	settleAll(t, s)
	posts.Wait()
	for i, a := range answers {
		if a.status != http.StatusOK || a.State != job.Succeeded || a.ID != accepted[i%jobs].ID {
			t.Fatalf("request %d got %v", i, a)
		}
	}
	for i, l := range listeners {
		if f := l.wantEvent(); f.id != "queued" {
			t.Fatalf("stream %d: %+v", i, f)
		}
		if f := l.wantEvent(); f.id != "succeeded" {
			t.Fatalf("stream %d: %+v", i, f)
		}
		l.wantEnd()
	}
	for i := range apis {
		s.awaitMetric(i, "triprize_jobs_waited_for", 0)
	}
	if err := s.stack.Redis.RestartAfter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

// awaitJob waits for a job at the n-th api for as long as it takes.
func (s *system) awaitJob(n int, id uuid.UUID) (a answer) {
	request, err := http.NewRequest(http.MethodGet, s.urls[n]+"/v1/jobs/"+id.String(), nil)
	if err != nil {
		return answer{err: err}
	}
	request.Header.Set("Authorization", "Bearer "+s.app)
	request.Header.Set("Prefer", "wait=180")
	response, err := streamClient.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	a.status, a.header = response.StatusCode, response.Header
	a.err = json.NewDecoder(response.Body).Decode(&a)
	return a
}
