//go:build go1.25

package client_test

import (
	"context"
	"errors"
	"fmt"
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

func lastEventIDs(requests []request) []string {
	var ids []string
	for _, r := range requests {
		ids = append(ids, r.header.Get("Last-Event-ID"))
	}
	return ids
}

func TestAStreamIsTakenUpWhereItBroke(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			switch n {
			case 1:
				return stream(w, "retry: 5000\n\n: ping\n\n"+event("a", 1)+"data: {\"positions\":{\"sold\":8}}\n\n"+event("b", 2))
			case 2: // in the middle of an event
				stream(w, "\r\nid: c\r\nevent: other\r\ndata: x\r\n\r\n"+event("d", 3)+strings.TrimSuffix(event("e", 9), "\n"))
				panic(http.ErrAbortHandler)
			case 3:
				refuseWith(w, http.StatusServiceUnavailable, client.CodeUnavailable, "30")
			case 4:
				return stream(w, event("f", 4))
			case 5:
				w.WriteHeader(http.StatusNoContent)
			}
			return true
		}
		var sold []int
		for e, err := range s.client().Follow(t.Context(), campaign) {
			if err != nil {
				t.Fatal(err)
			}
			sold = append(sold, e.Positions.Sold)
		}
		requests := s.seen()
		if !slices.Equal(sold, []int{1, 2, 3, 4}) || !slices.Equal(lastEventIDs(requests), []string{"", "b", "d", "d", "f"}) {
			t.Errorf("sold %v, seen %q", sold, lastEventIDs(requests))
		}
		if pause := requests[1].at.Sub(requests[0].at); pause != 5*time.Second {
			t.Errorf("came back after %s", pause)
		}
		if pause := requests[3].at.Sub(requests[2].at); pause < 30*time.Second {
			t.Errorf("came back after %s", pause)
		}
	})
}

func TestAStreamEndsWithTheLastEvent(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/v1/jobs/") {
				return stream(w, "event: job\ndata: {\"state\":\"queued\"}\n\nevent: job\ndata: {\"state\":\"failed\",\"problem\":{\"code\":\"sold-out\"}}\n\n")
			}
			return stream(w, "event: "+map[bool]string{true: "draw", false: "campaign"}[strings.HasSuffix(r.URL.Path, "/draw/events")]+"\ndata: {\"state\":\"completed\"}\n\n")
		}
		var states []client.JobState
		for j, err := range s.client().FollowJob(t.Context(), jobID) {
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, j.State)
		}
		for _, err := range s.client().Follow(t.Context(), campaign) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for d, err := range s.client().FollowDraw(t.Context(), campaign) {
			if err != nil || d.State != client.CampaignStateCompleted {
				t.Fatal(d, err)
			}
		}
		if !slices.Equal(states, []client.JobState{client.JobStateQueued, client.JobStateFailed}) || len(s.seen()) != 3 {
			t.Errorf("%v after %d requests", states, len(s.seen()))
		}
	})
}

func TestACancelledCampaignIsFollowedUntilAllIsGivenBack(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		back := func(done int) string {
			return fmt.Sprintf("id: %d\nevent: campaign\ndata: {\"state\":\"cancelled\",\"refunds\":{\"total\":3,\"done\":%d,\"waiting\":0}}\n\n", done, done)
		}
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 { // cut in the middle
				return stream(w, event("a", 3)+back(0)+back(1))
			}
			return stream(w, back(2)+back(3)+"event: end\ndata: {\"reason\":\"over\"}\n\n")
		}
		var done []int
		for e, err := range s.client().Follow(t.Context(), campaign) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Refunds != nil {
				done = append(done, e.Refunds.Done)
			}
		}
		if !slices.Equal(done, []int{0, 1, 2, 3}) || !slices.Equal(lastEventIDs(s.seen()), []string{"", "1"}) {
			t.Errorf("given back %v, seen %q", done, lastEventIDs(s.seen()))
		}
	})
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

func TestTheEndOfAContextEndsAStreamAtOnce(t *testing.T) {
	for name, text := range map[string]string{"while it is silent": "", "between connections": event("a", 1)} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
					stream(w, "retry: 60000\n\n"+text)
					if text == "" {
						hold(r, time.Hour)
					}
					return true
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				var last error
				for _, err := range s.client().Follow(ctx, campaign) {
					last = err
				}
				if !errors.Is(last, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
					t.Errorf("after %s: %v", time.Since(start), last)
				}
			})
		})
	}
}

func TestAStreamThatGetsOnIsNotGivenUp(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			switch {
			case n > 10:
				w.WriteHeader(http.StatusNoContent)
			case n%2 == 0:
				refuseWith(w, http.StatusBadGateway, "", "")
			default:
				stream(w, event("a", n))
				panic(http.ErrAbortHandler)
			}
			return true
		}
		events := 0
		for _, err := range s.client(client.WithRetry(client.RetryPolicy{Attempts: 3})).Follow(t.Context(), campaign) {
			if err != nil {
				t.Fatal(err)
			}
			events++
		}
		if events != 5 {
			t.Errorf("%d events", events)
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

func TestAStreamThatCannotBeIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		answer   func(w http.ResponseWriter)
		requests int
	}{
		"forbidden":   {func(w http.ResponseWriter) { refuseWith(w, http.StatusForbidden, client.CodeForbidden, "") }, 1},
		"no stream":   {func(w http.ResponseWriter) { say(w, http.StatusOK, "hello") }, 1},
		"no JSON":     {func(w http.ResponseWriter) { stream(w, "event: campaign\ndata: {\n\n") }, 1},
		"no object":   {func(w http.ResponseWriter) { stream(w, "event: campaign\ndata: [1]\n\n") }, 1},
		"a long line": {func(w http.ResponseWriter) { stream(w, "data: "+strings.Repeat("x", 2<<20)+"\n\n") }, 1},
		"a long event": {func(w http.ResponseWriter) {
			stream(w, strings.Repeat("data: "+strings.Repeat("x", 1<<10)+"\n", 2<<10)+"\n")
		}, 1},
		"unavailable": {func(w http.ResponseWriter) { refuseWith(w, http.StatusServiceUnavailable, client.CodeUnavailable, "") }, 3},
		"broken":      {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
					if n > test.requests {
						w.WriteHeader(http.StatusNoContent)
					} else {
						test.answer(w)
					}
					return true
				}
				var got []error
				for _, err := range s.client(client.WithRetry(client.RetryPolicy{Attempts: 3})).Follow(t.Context(), campaign) {
					got = append(got, err)
				}
				if len(got) != 1 || got[0] == nil || len(s.seen()) != test.requests {
					t.Errorf("%d requests: %v", len(s.seen()), got)
				}
			})
		})
	}
}
