package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/client"
	"triprize/internal/store/job"
)

// lively streams say soon that they are silent.
const lively = "TRIPRIZE_STREAMS_HEARTBEAT=100ms"

func jobEvents(id uuid.UUID) string      { return "/v1/jobs/" + id.String() + "/events" }
func campaignEvents(id uuid.UUID) string { return "/v1/campaigns/" + id.String() + "/events" }

func TestAJobsStreamTellsWhatIsAndWhatBecomesOfIt(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, env: []string{lively}})
	bought := s.buy(order{campaign: s.campaign(4), user: "a"})
	path := jobEvents(bought.ID)
	l, resumed := s.listen(0, s.app, path, ""), s.listen(0, s.app, path, "queued")
	if first, _ := l.next(); first.retry == "" || l.header.Get("Content-Type") != "text/event-stream" ||
		l.header.Get("Cache-Control") != "no-store" || l.header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("it begins with %+v: %v", first, l.header)
	}
	if now, _ := l.next(); now.id != "queued" || now.name != "job" || !strings.Contains(now.data, bought.ID.String()) {
		t.Errorf("the job as it is: %+v", now)
	}
	l.wantSilence(5)
	resumed.wantSilence(5)
	s.startWorker()
	for what, follower := range map[string]*listener{"from the start": l, "resumed": resumed, "after it was final": s.listen(0, s.app, path, "queued")} {
		end := follower.wantEvent()
		now := s.job(bought.ID)
		if end.id != "succeeded" || end.data != string(now.body) || now.State != job.Succeeded {
			t.Errorf("%s: the end is %+v, the job %s", what, end, now.body)
		}
		follower.wantEnd()
	}
	if over := s.listen(0, s.app, path, "succeeded"); over.status != http.StatusNoContent || len(over.body) != 0 {
		t.Errorf("to who has seen the end: %v", over.answer)
	}
	if other := s.listen(0, s.newKey("another-shop"), path, ""); other.status != http.StatusNotFound {
		t.Errorf("to another client: %v", other.answer)
	}
}

// saleNow is what an event of a campaign's stream says.
type saleNow struct {
	State     string
	Positions struct{ Total, Available, Reserved, Sold int }
}

func saleIn(t *testing.T, f frame) (now saleNow) {
	t.Helper()
	if err := json.Unmarshal([]byte(f.data), &now); err != nil || f.name != "campaign" {
		t.Fatal(f, err)
	}
	return now
}

func TestACampaignsStreamTellsHowACrowdBuysItOut(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: 2, env: []string{lively, "TRIPRIZE_STREAMS_INTERVAL=20ms"}})
	id := s.campaign(12) // 78 positions
	l := s.listen(0, s.app, campaignEvents(id), "")
	events := []frame{l.wantEvent()}
	resumed := s.listen(1, s.app, campaignEvents(id), events[0].id)
	resumed.wantSilence(5)
	for bought := 0; bought < 78; {
		s.crowd(26, func(i int) order { return order{campaign: id, user: string(rune('a' + i%20)), api: i} })
		for bought += 26; saleIn(t, events[len(events)-1]).Positions.Sold < bought; {
			events = append(events, l.wantEvent())
		}
	}
	for f, more := l.event(); more; f, more = l.event() {
		events = append(events, f)
	}
	sold := -1
	for i, f := range events {
		now := saleIn(t, f)
		p := now.Positions
		if p.Total != 78 || p.Available+p.Reserved+p.Sold != 78 || p.Sold < sold || i > 0 && f.id == events[i-1].id {
			t.Errorf("event %d: %+v", i, f)
		}
		sold = p.Sold
		if i == len(events)-1 && (now.State != "completed" || sold != 78) {
			t.Errorf("the last event: %+v", f)
		}
	}
	if l.err != nil {
		t.Errorf("%d events, %v", len(events), l.err)
	}
	last := events[len(events)-1]
	seen := []string{events[0].id}
	for f, more := resumed.event(); more; f, more = resumed.event() {
		if slices.Contains(seen, f.id) {
			t.Errorf("told twice: %+v", f)
		}
		seen = append(seen, f.id)
	}
	if seen[len(seen)-1] != last.id || len(seen) < 2 {
		t.Errorf("the other api ends with another version: %v, want %s", seen, last.id)
	}
	late := s.listen(1, s.app, campaignEvents(id), events[1].id)
	if only := late.wantEvent(); only != last {
		t.Errorf("to who was away: %+v", only)
	}
	late.wantEnd()
	if over := s.listen(1, s.app, campaignEvents(id), last.id); over.status != http.StatusNoContent {
		t.Errorf("to who has seen the end: %v", over.answer)
	}
}

func TestAClientHasItsShareOfTheStreams(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, env: []string{lively, "TRIPRIZE_STREAMS_MAX_PER_CLIENT=2", "TRIPRIZE_STREAMS_MAX_OPEN=3"}})
	id := s.campaign(4)
	queued := s.buy(order{campaign: id, user: "a"})
	first, second := s.listen(0, s.app, campaignEvents(id), ""), s.listen(0, s.app, jobEvents(queued.ID), "")
	for _, path := range []string{campaignEvents(id), jobEvents(queued.ID)} {
		more := s.listen(0, s.app, path, "")
		if more.status != http.StatusTooManyRequests || more.code() != "rate-limited" || more.header.Get("Retry-After") == "" {
			t.Errorf("one too many: %v, %v", more.answer, more.header)
		}
		checkProblem(t, more.answer)
	}
	another := s.listen(0, s.operator, campaignEvents(id), "")
	full := s.listen(0, s.newKey("another-shop"), campaignEvents(id), "")
	if full.status != http.StatusServiceUnavailable || full.code() != "overloaded" || full.header.Get("Retry-After") == "" {
		t.Errorf("one more than the process carries: %v", full.answer)
	}
	for _, l := range []*listener{first, second, another} {
		l.wantEvent()
		l.hangUp()
	}
	s.awaitMetric(0, "triprize_streams_open", 0)
	s.awaitMetric(0, "triprize_jobs_waited_for", 0)
	s.listen(0, s.app, campaignEvents(id), "").wantEvent()
	// Who only asks for the header has no stream, and gets nothing else on its connection.
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.urls[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	for range 3 {
		for _, path := range []string{campaignEvents(id), jobEvents(queued.ID)} {
			for _, method := range []string{http.MethodHead, http.MethodPost} {
				fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\n\r\n", method, path, s.operator)
				response, err := http.ReadResponse(answers, &http.Request{Method: method})
				if err != nil {
					t.Fatalf("%s %s: %v", method, path, err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if method == http.MethodHead && (response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream") {
					t.Errorf("HEAD %s: %s %v", path, response.Status, response.Header)
				}
			}
			s.awaitMetric(0, "triprize_streams_open", 1)
		}
	}
}

func TestAnAPIThatStopsEndsItsStreamsAndAnotherGoesOn(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, env: []string{"TRIPRIZE_API_SHUTDOWN_TIMEOUT=10s"}})
	id := s.campaign(4)
	queued := s.buy(order{campaign: id, user: "a"})
	board, follower := s.listen(0, s.app, campaignEvents(id), ""), s.listen(0, s.app, jobEvents(queued.ID), "")
	seen := board.wantEvent()
	follower.wantEvent()
	if err := s.APIs[0].Stop(terminate, 30*time.Second); err != nil { // an error when it had to be killed
		t.Fatal(err)
	}
	board.wantEnd()
	follower.wantEnd()
	if log := s.log("api-1"); contains(log, "cut off") {
		t.Errorf("it did not wait for its streams: %s", tail(log, 1000))
	}
	again, same := s.listen(1, s.app, campaignEvents(id), seen.id), s.listen(1, s.app, jobEvents(queued.ID), "queued")
	s.startWorker()
	if next := again.wantEvent(); next.id == seen.id {
		t.Errorf("told twice: %+v", next)
	}
	if end := same.wantEvent(); end.id != "succeeded" {
		t.Errorf("got %+v", end)
	}
	same.wantEnd()
}

func TestTheClientFollowsOverManyConnectionsAndProcesses(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, env: []string{lively, "TRIPRIZE_STREAMS_MAX_AGE=300ms", "TRIPRIZE_STREAMS_RETRY=100ms"}})
	id := s.campaign(3)
	queued := s.buy(order{campaign: id, user: "a"})
	var dialer net.Dialer
	balancer := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, strings.TrimPrefix(s.urls[0], "http://"))
		if err != nil {
			conn, err = dialer.DialContext(ctx, network, strings.TrimPrefix(s.urls[1], "http://"))
		}
		return conn, err
	}}
	c, err := client.New("http://balancer", s.app, client.WithHTTPClient(&http.Client{Transport: balancer}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told, failed := make(chan client.JobState, 100), make(chan error, 1)
	go func() {
		defer close(told)
		for now, err := range c.FollowJob(ctx, queued.ID) {
			if err != nil {
				failed <- err
				return
			}
			told <- now.State
		}
	}()
	states := []client.JobState{<-told}
	eventually(t, 30*time.Second, "the client has come back twice", func() bool {
		return s.metric(0, `triprize_http_request_duration_seconds_count{method="GET",route="/v1/jobs/:job/events",status="200"}`) > 2
	})
	if err := s.APIs[0].Stop(terminate, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	s.startWorker()
	for state := range told {
		states = append(states, state)
	}
	if len(failed) > 0 {
		t.Error(<-failed)
	}
	if !slices.Equal(states, []client.JobState{client.JobStateQueued, client.JobStateSucceeded}) {
		t.Errorf("followed: %v", states)
	}
}
