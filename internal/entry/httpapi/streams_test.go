package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/platform/stream"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

func TestAJobsStreamTellsWhatIsAndWhatBecomesOfIt(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Env: []string{fleet.Lively}})
	bought := s.Buy(fleet.Order{Campaign: s.Campaign(4), User: "a"})
	path := fleet.JobEvents(bought.ID)
	l, resumed := s.Listen(0, s.App, path, ""), s.Listen(0, s.App, path, "queued")
	if first, _ := l.Next(); first.Retry == "" || l.Header.Get("Content-Type") != "text/event-stream" ||
		l.Header.Get("Cache-Control") != "no-store" || l.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("it begins with %+v: %v", first, l.Header)
	}
	if now, _ := l.Next(); now.ID != "queued" || now.Name != "job" || !strings.Contains(now.Data, bought.ID.String()) {
		t.Errorf("the job as it is: %+v", now)
	}
	l.WantSilence(5)
	resumed.WantSilence(5)
	s.RunWorker()
	for what, follower := range map[string]*fleet.Listener{"from the start": l, "resumed": resumed, "after it was final": s.Listen(0, s.App, path, "queued")} {
		end := follower.WantEvent()
		now := s.Job(bought.ID)
		if end.ID != "succeeded" || end.Data != string(now.Body) || now.State != job.Succeeded {
			t.Errorf("%s: the end is %+v, the job %s", what, end, now.Body)
		}
		follower.WantEnd()
	}
	if over := s.Listen(0, s.App, path, "succeeded"); over.Status != http.StatusNoContent || len(over.Body) != 0 {
		t.Errorf("to who has seen the end: %v", over.Answer)
	}
	if other := s.Listen(0, s.NewKey("another-shop"), path, ""); other.Status != http.StatusNotFound {
		t.Errorf("to another client: %v", other.Answer)
	}
}

func TestAClientHasItsShareOfTheStreams(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_STREAMS_MAX_PER_CLIENT=2", "TRIPRIZE_STREAMS_MAX_OPEN=3")
	id := s.Campaign(4)
	queued := s.Buy(fleet.Order{Campaign: id, User: "a"})
	first, second := s.Listen(0, s.App, fleet.CampaignEvents(id), ""), s.Listen(0, s.App, fleet.JobEvents(queued.ID), "")
	for _, path := range []string{fleet.CampaignEvents(id), fleet.JobEvents(queued.ID)} {
		more := s.Listen(0, s.App, path, "")
		if more.Status != http.StatusTooManyRequests || more.Refusal() != "rate-limited" || more.Header.Get("Retry-After") == "" {
			t.Errorf("one too many: %v, %v", more.Answer, more.Header)
		}
		fleet.CheckProblem(t, more.Answer)
	}
	another := s.Listen(0, s.Operator, fleet.CampaignEvents(id), "")
	full := s.Listen(0, s.NewKey("another-shop"), fleet.CampaignEvents(id), "")
	if full.Status != http.StatusServiceUnavailable || full.Refusal() != "overloaded" || full.Header.Get("Retry-After") == "" {
		t.Errorf("one more than the process carries: %v", full.Answer)
	}
	for _, l := range []*fleet.Listener{first, second, another} {
		l.WantEvent()
		l.HangUp()
	}
	s.AwaitMetric(0, "triprize_streams_open", 0)
	s.AwaitMetric(0, "triprize_jobs_waited_for", 0)
	s.Listen(0, s.App, fleet.CampaignEvents(id), "").WantEvent()
	// Who only asks for the header has no stream, and gets nothing else on its connection.
	for _, path := range []string{fleet.CampaignEvents(id), fleet.JobEvents(queued.ID)} {
		text := ""
		for range 3 {
			text += fmt.Sprintf("HEAD %s HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\n\r\n", path, s.Operator)
		}
		answers := wire(s, path, text)
		if len(answers) != 3 {
			t.Errorf("HEAD %s: %v", path, answers)
		}
		for _, a := range answers {
			wantAnswer(t, "HEAD "+path, a, 200, valued{"Content-Type", "text/event-stream"})
		}
		s.AwaitMetric(0, "triprize_streams_open", 1)
	}
}

func TestTheStreamsOfARevokedKeyEndAndItsEndpointsToo(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{fleet.Lively}})
	id := s.Campaign(4)
	idempotencyKey := s.NewKey("thief")
	prefix := strings.Split(idempotencyKey, "_")[1]
	board := s.Listen(0, idempotencyKey, "/v1/campaigns/"+id.String()+"/events", "")
	board.WantEvent()
	mine := s.Listen(0, s.App, "/v1/campaigns/"+id.String()+"/events", "")
	mine.WantEvent()
	e := endpointOf(s, asked(s, idempotencyKey, endpointsPath, "a", endpointBody("*")), http.StatusCreated)
	_, _, err := key.Revoke(t.Context(), s.DB, prefix, "", webhook.KeyRevoked)
	servers.NoError(t, err)
	board.WantEnd()
	if board.Reason() != stream.Revoked {
		t.Errorf("the stream ends with %q", board.Reason())
	}
	servers.Eventually(t, "the key is refused", func() bool {
		return s.Do(0, idempotencyKey, http.MethodGet, endpointsPath, nil, nil).Status == http.StatusUnauthorized
	})
	now := endpointOf(s, s.Do(0, s.Operator, http.MethodGet, endpointsPath+"/"+e.ID.String(), nil, nil), http.StatusOK)
	if now.State != "disabled" || now.DisabledReason == nil || *now.DisabledReason != "revoked" {
		t.Errorf("its endpoint: %+v", now)
	}
	s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true})
	mine.WantEvent() // goes on
	mine.HangUp()
}

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
			for again := true; again; again = answers[i].Status == http.StatusServiceUnavailable || answers[i].Status == http.StatusAccepted { // a busy process says so, and one whose longest wait is over
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
	servers.Eventually(t, "one connection to Redis of each api is subscribed", func() bool {
		clients, err := s.Redis.ClientList(t.Context()).Result()
		return err == nil && len(subscribed.FindAllString(clients, -1)) == apis+1
	})
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
	servers.NoError(t, s.Stack.Redis.Stop())
	count(poll, "without Redis")

	fleet.CompleteAll(t, s)
	posts.Wait()
	for i, a := range answers {
		mustAnswer(t, fmt.Sprintf("request %d got", i), a, 200, job.Succeeded, accepted[i%jobs].ID)
	}
	for i, l := range listeners {
		if first, last := l.WantEvent(), l.WantEvent(); first.ID != "queued" || last.ID != "succeeded" {
			t.Fatalf("stream %d: %+v, %+v", i, first, last)
		}
		l.WantEnd()
	}
	for i := range apis {
		s.AwaitMetric(i, "triprize_jobs_waited_for", 0)
	}
	servers.NoError(t, s.Stack.Redis.RestartAfter(t.Context(), 0))
}

// Requests that wait for a job take no turn of those that read.
func TestWaitsForAJobLeaveReadsToOthers(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1})
	id := s.Campaign(3)
	open := s.Buy(fleet.Order{Campaign: id, User: "mina"})
	const waiting = 20 // there are ten connections
	var group sync.WaitGroup
	for range waiting {
		group.Go(func() {
			wantAnswer(t, "a wait", s.AwaitJob(0, open.ID), job.Succeeded)
		})
	}
	for range 10 * waiting {
		mustAnswer(t, "a read beside the waits", s.Do(0, s.App, http.MethodGet, "/v1/purchases?reference=none", nil, nil), 200)
	}
	s.RunWorker()
	group.Wait()
}
