//go:build go1.25

package client_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"triprize.example/client"
)

// stream answers with the text of a stream, and ends it.
func stream(w http.ResponseWriter, text string) bool {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(text))
	_ = http.NewResponseController(w).Flush()
	return true
}

func event(id string, sold int) string {
	return fmt.Sprintf("id: %s\nevent: campaign\ndata: {\"state\":\"active\",\ndata: \"positions\":{\"sold\":%d}}\n\n", id, sold)
}

// collect says what comes, until the end or an error.
func collect[T any](all iter.Seq2[T, error], say func(T) string) (said []string, err error) {
	for one, err := range all {
		if err != nil {
			return said, err
		}
		said = append(said, say(one))
	}
	return said, nil
}

// part is the answer to one request for a stream.
type part struct {
	text   string // of the stream
	cut    bool   // the connection breaks after it
	status int    // that is answered in place of a stream
	after  string // Retry-After
}

func TestAStreamIsReadToItsEndWhereverItBreaks(t *testing.T) {
	const over = "event: end\ndata: {\"reason\":\"over\"}\n\n"
	back := func(done int) string {
		return fmt.Sprintf("id: %d\nevent: campaign\ndata: {\"state\":\"cancelled\",\"refunds\":{\"total\":3,\"done\":%d,\"waiting\":0}}\n\n", done, done)
	}
	follow := func(ctx context.Context, c *client.Client) ([]string, error) {
		return collect(c.Follow(ctx, campaign), func(e client.CampaignEvent) string {
			if e.Refunds != nil {
				return fmt.Sprint("back ", e.Refunds.Done)
			}
			return fmt.Sprint("sold ", e.Positions.Sold)
		})
	}
	broken := []part{{text: event("a", 1), cut: true}, {status: http.StatusBadGateway}}
	for name, c := range map[string]struct {
		follow func(context.Context, *client.Client) ([]string, error) // nil: of a campaign
		parts  []part
		events string
		ids    string // Last-Event-ID of each request
		fails  bool
		pauses map[int]time.Duration // after a request, from 0
	}{
		"in events, between them, by a refusal": {parts: []part{
			{text: "retry: 5000\n\n: ping\n\n" + event("a", 1) + "data: {\"positions\":{\"sold\":8}}\n\n" + event("b", 2)},
			{text: "\r\nid: c\r\nevent: other\r\ndata: x\r\n\r\n" + event("d", 3) + strings.TrimSuffix(event("e", 9), "\n"), cut: true},
			{status: http.StatusServiceUnavailable, after: "30"}, {text: event("f", 4)}, {status: http.StatusNoContent},
		}, events: "sold 1 sold 2 sold 3 sold 4", ids: " b d d f", pauses: map[int]time.Duration{0: 5 * time.Second, 2: 30 * time.Second}},
		"again and again": {parts: append(slices.Repeat(broken, 5), part{status: http.StatusNoContent}),
			events: "sold 1 sold 1 sold 1 sold 1 sold 1", ids: " a a a a a a a a a a"},
		"until all is given back": {parts: []part{{text: event("a", 3) + back(0) + back(1)}, {text: back(2) + back(3) + over}},
			events: "sold 3 back 0 back 1 back 2 back 3", ids: " 1"},
		"a campaign that is over": {parts: []part{{text: "event: campaign\ndata: {\"state\":\"completed\"}\n\n"}}, events: "sold 0"},
		"a job": {follow: func(ctx context.Context, c *client.Client) ([]string, error) {
			return collect(c.FollowJob(ctx, jobID), func(j client.Job) string { return string(j.State) })
		}, parts: []part{{text: "event: job\ndata: {\"state\":\"queued\"}\n\nevent: job\ndata: {\"state\":\"failed\",\"problem\":{\"code\":\"sold-out\"}}\n\n"}}, events: "queued failed"},
		"a draw": {follow: func(ctx context.Context, c *client.Client) ([]string, error) {
			return collect(c.FollowDraw(ctx, campaign), func(d client.Draw) string { return string(d.State) })
		}, parts: []part{{text: "event: draw\ndata: {\"state\":\"completed\"}\n\n"}}, events: "completed"},
		"forbidden":           {parts: []part{{status: http.StatusForbidden}}, fails: true},
		"no stream":           {parts: []part{{status: http.StatusOK}}, fails: true},
		"no JSON":             {parts: []part{{text: "event: campaign\ndata: {\n\n"}}, fails: true},
		"no object":           {parts: []part{{text: "event: campaign\ndata: [1]\n\n"}}, fails: true},
		"a long line":         {parts: []part{{text: "data: " + strings.Repeat("x", 2<<20) + "\n\n"}}, fails: true},
		"a long event":        {parts: []part{{text: strings.Repeat("data: "+strings.Repeat("x", 1<<10)+"\n", 2<<10) + "\n"}}, fails: true},
		"unavailable, thrice": {parts: slices.Repeat([]part{{status: http.StatusServiceUnavailable}}, 3), ids: "  ", fails: true},
		"broken, thrice":      {parts: slices.Repeat([]part{{cut: true}}, 3), ids: "  ", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
					now := part{status: http.StatusNoContent}
					if n <= len(c.parts) {
						now = c.parts[n-1]
					}
					switch {
					case now.status == http.StatusNoContent:
						w.WriteHeader(now.status)
					case now.status == http.StatusOK:
						say(w, now.status, "hello")
					case now.status > 0:
						refuseWith(w, now.status, client.CodeUnavailable, now.after)
					case now.text != "":
						stream(w, now.text)
					}
					if now.cut {
						panic(http.ErrAbortHandler)
					}
					return true
				}
				if c.follow == nil {
					c.follow = follow
				}
				events, err := c.follow(t.Context(), s.client(client.WithRetry(client.RetryPolicy{Attempts: 3})))
				requests := s.seen()
				var ids []string
				for i, r := range requests {
					ids = append(ids, r.header.Get("Last-Event-ID"))
					if pause := c.pauses[i]; pause > 0 && (requests[i+1].at.Sub(r.at) < pause || requests[i+1].at.Sub(r.at) > pause*5/4) {
						t.Errorf("came back after %s, want %s", requests[i+1].at.Sub(r.at), pause)
					}
				}
				if (err != nil) != c.fails || strings.Join(events, " ") != c.events || strings.Join(ids, " ") != c.ids || len(requests) != len(c.parts) {
					t.Errorf("%d requests with %q: %v, %v", len(requests), ids, events, err)
				}
			})
		})
	}
}

func TestAStreamThatIsNotWantedAnyMoreIsClosed(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		closed := make(chan struct{})
		s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			stream(w, event("a", 1))
			<-r.Context().Done()
			close(closed)
			return true
		}
		for _, err := range s.client().Follow(t.Context(), campaign) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		synctest.Wait()
		select {
		case <-closed:
		default:
			t.Error("it is still open")
		}
	})
}

func TestASilentStreamIsTakenUpAgain(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
			switch n {
			case 1: // it does not even begin
				hold(r, time.Hour)
				return true
			case 3:
				w.WriteHeader(http.StatusNoContent)
				return true
			}
			for range 10 { // pings keep it alive
				stream(w, ": ping\n\n")
				hold(r, 50*time.Second)
			}
			hold(r, time.Hour)
			return true
		}
		start := time.Now()
		for _, err := range s.client(client.WithTimeout(15*time.Second)).Follow(t.Context(), campaign) {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 570*time.Second || took > 580*time.Second || len(s.seen()) != 3 {
			t.Errorf("%d requests in %s", len(s.seen()), took)
		}
	})
}
