//go:build go1.25

package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize.example/client"
)

func TestWhatGetsNoWholeAnswerIsAskedForAgainWithTheSameKey(t *testing.T) {
	refusing := func(status int, code string, after func() string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				refuseWith(w, status, code, after())
			}
			return n == 1
		}
	}
	for name, c := range map[string]struct {
		lose     func(n int) bool
		answer   func(n int, w http.ResponseWriter, r *http.Request) bool
		requests int
		after    time.Duration // the second one,
		jitter   time.Duration // and no more than this later; 0: a second
	}{
		"429": {answer: refusing(http.StatusTooManyRequests, client.CodeRateLimited, func() string { return "7" }), requests: 2, after: 7 * time.Second, jitter: 7 * time.Second / 4},
		"503": {answer: refusing(http.StatusServiceUnavailable, client.CodeOverloaded, func() string { return "40" }), requests: 2, after: 40 * time.Second, jitter: 10 * time.Second},
		"503 by a date": {answer: refusing(http.StatusServiceUnavailable, client.CodeUnavailable, func() string { return time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat) }),
			requests: 2, after: 30 * time.Second, jitter: 30 * time.Second / 4},
		"an answer is lost, twice": {lose: func(n int) bool { return n <= 2 }, requests: 3},
		"an answer breaks off": {answer: func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				w.Header().Set("Content-Length", "100")
				_, _ = w.Write([]byte(`{"name":`))
			}
			return n == 1
		}, requests: 2},
		"an answer begins, and hangs": {answer: func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 1 {
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				hold(r, time.Hour)
			}
			return n == 1
		}, requests: 2, after: 35 * time.Second}, // the server may wait for 30
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.lose, s.answer = c.lose, c.answer
				bought, err := s.client(client.WithTimeout(5*time.Second)).Buy(t.Context(), campaign, one)
				requests := s.seen()
				if err != nil || len(requests) != c.requests || len(s.jobs) != 1 {
					t.Fatalf("%d requests made %d jobs: %v", len(requests), len(s.jobs), err)
				}
				key := requests[0].header.Get("Idempotency-Key")
				for _, r := range requests {
					if r.header.Get("Idempotency-Key") != key || r.body != requests[0].body || r.body == "" {
						t.Errorf("another request: %v", r)
					}
				}
				if made := s.jobs[key]; made.ID != bought.ID {
					t.Errorf("got job %s, not %s", bought.ID, made.ID)
				}
				if waited := requests[1].at.Sub(requests[0].at); waited < c.after || waited > c.after+cmp.Or(c.jitter, time.Second) {
					t.Errorf("asked again after %s", waited)
				}
			})
		})
	}
}

func TestEveryPurchaseHasAKeyOfItsOwnOrTheOneItIsGiven(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		c := s.client()
		var jobs []client.JobID
		for _, options := range [][]client.CallOption{nil, nil, {client.WithKey("order-1")}, {client.WithKey("order-1")}} {
			j, err := c.Buy(t.Context(), campaign, one, options...)
			if err != nil {
				t.Fatal(err)
			}
			jobs = append(jobs, j.ID)
		}
		if len(s.jobs) != 3 || jobs[2] != jobs[3] || s.jobs["order-1"].ID != jobs[2] {
			t.Errorf("%d jobs: %v", len(s.jobs), jobs)
		}
		for _, key := range []string{"", "a\nb", "é", strings.Repeat("x", 256)} {
			if _, err := c.Buy(t.Context(), campaign, one, client.WithKey(key)); err == nil {
				t.Errorf("key %q was taken", key)
			}
		}
		if n := len(s.seen()); n != 4 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestWhatIsSentAgain(t *testing.T) {
	again := []int{408, 429, 500, 502, 503, 504}
	for _, status := range append([]int{301, 400, 401, 403, 404, 405, 409, 412, 413, 415, 422, 501}, again...) {
		t.Run(http.StatusText(status), func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
					refuseWith(w, status, "some-code", "")
					return true
				}
				c := s.client(client.WithRetry(client.RetryPolicy{Attempts: 3}))
				for method, call := range map[string]func() error{
					http.MethodGet:    func() error { _, err := c.GetCampaign(t.Context(), campaign); return err },
					http.MethodPost:   func() error { _, err := c.PublishCampaign(t.Context(), campaign); return err },
					http.MethodDelete: func() error { return c.ReleaseHold(t.Context(), jobID) },
					http.MethodPatch: func() error {
						_, err := c.PatchCampaign(t.Context(), campaign, client.CampaignPatch{Name: "A"})
						return err
					},
				} {
					before, want := len(s.seen()), 1
					if slices.Contains(again, status) && method != http.MethodPatch {
						want = 3
					}
					problem, ok := asError(call())
					if !ok || problem.Code != "some-code" || problem.Status != status || problem.Detail != "because" || problem.RequestID != "request-1" {
						t.Errorf("%s: %+v", method, problem)
					}
					if n := len(s.seen()) - before; n != want {
						t.Errorf("%s was sent %d times, not %d", method, n, want)
					}
				}
			})
		})
	}
}

func TestAPatchIsSentAgainOnlyIfItHasNotLeft(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.refuse = func(n int) bool { return n <= 2 }
		c := s.client()
		if _, err := c.PatchCampaign(t.Context(), campaign, client.CampaignPatch{Name: "A"}, client.WithKey("no use")); err != nil || len(s.seen()) != 1 {
			t.Errorf("%d requests: %v", len(s.seen()), err)
		}
		if key := s.seen()[0].header.Get("Idempotency-Key"); key != "" {
			t.Errorf("a PATCH with key %q", key)
		}
		s.lose = func(int) bool { return true }
		if _, err := c.PatchCampaign(t.Context(), campaign, client.CampaignPatch{Name: "B"}); err == nil || len(s.seen()) != 2 {
			t.Errorf("%d requests: %v", len(s.seen()), err)
		}
	})
}

func TestRetriesAreBounded(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		after := ""
		s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			refuseWith(w, http.StatusServiceUnavailable, client.CodeUnavailable, after)
			return true
		}
		c := s.client(client.WithRetry(client.RetryPolicy{Attempts: 4, Elapsed: time.Minute}))
		_, err := c.Buy(t.Context(), campaign, one, client.WithKey("order-1"))
		if problem, ok := asError(err); !ok || problem.Code != client.CodeUnavailable || len(s.seen()) != 4 {
			t.Errorf("%d requests: %v", len(s.seen()), err)
		}
		if !strings.Contains(err.Error(), "order-1") || !strings.Contains(err.Error(), "request-1") {
			t.Errorf("nobody can ask again after %q", err)
		}
		after = "61"
		start := time.Now()
		_, err = c.Buy(t.Context(), campaign, one)
		if problem, ok := asError(err); !ok || problem.RetryAfter != 61*time.Second || len(s.seen()) != 5 || time.Since(start) > 0 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d requests in %s: %v", len(s.seen()), time.Since(start), err)
		}
		after = "99999999999999999999"
		if _, err = c.Buy(t.Context(), campaign, one); err == nil {
			t.Error("no error")
		}
	})
}

func TestTheEndOfAContextEndsWaitingAtOnce(t *testing.T) {
	type call = func(context.Context, *client.Client) error
	var (
		wait = func(ctx context.Context, c *client.Client) error {
			j, err := c.Wait(ctx, jobID)
			if j.State != "" {
				return fmt.Errorf("the job is %s: %w", j.State, err)
			}
			return err
		}
		follow = func(ctx context.Context, c *client.Client) error {
			return errOf(collect(c.Follow(ctx, campaign), func(client.CampaignEvent) string { return "" }))
		}
	)
	for name, c := range map[string]struct {
		call
		answer func(w http.ResponseWriter, r *http.Request)
		says   string
	}{
		"between attempts": {wait, func(w http.ResponseWriter, _ *http.Request) {
			refuseWith(w, http.StatusServiceUnavailable, client.CodeUnavailable, "50")
		}, client.CodeUnavailable},
		"for an answer": {wait, func(_ http.ResponseWriter, r *http.Request) { hold(r, time.Hour) }, ""},
		"for a job": {wait, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			say(w, http.StatusAccepted, job(jobID, client.JobStateQueued))
		}, "the job is queued"},
		"for an event":    {follow, func(w http.ResponseWriter, r *http.Request) { stream(w, ": ping\n\n"); hold(r, time.Hour) }, ""},
		"between streams": {follow, func(w http.ResponseWriter, _ *http.Request) { stream(w, "retry: 60000\n\n"+event("a", 1)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool { c.answer(w, r); return true }
				ctx, cancel := context.WithCancel(t.Context())
				began := time.Now()
				time.AfterFunc(3*time.Second, cancel)
				err := c.call(ctx, s.client())
				if !errors.Is(err, context.Canceled) || time.Since(began) != 3*time.Second || len(s.seen()) != 1 || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%d requests in %s: %v", len(s.seen()), time.Since(began), err)
				}
			})
		})
	}
}
