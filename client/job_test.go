//go:build go1.25

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"triprize.example/client"
)

func TestBuyWaitsUntilTheJobIsFinal(t *testing.T) {
	for _, end := range []client.JobState{client.JobStateSucceeded, client.JobStateFailed, client.JobStateAwaitingAction} {
		t.Run(string(end), func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
					if n < 4 {
						hold(r, 30*time.Second)
						say(w, http.StatusAccepted, job(jobID, client.JobStateQueued))
					} else {
						say(w, http.StatusOK, job(jobID, end))
					}
					return true
				}
				start := time.Now()
				j, err := s.client().Buy(t.Context(), campaign, one)
				if err != nil || j.State != end || time.Since(start) != 90*time.Second {
					t.Errorf("after %s: %+v, %v", time.Since(start), j, err)
				}
				requests := s.seen()
				if len(requests) != 4 || requests[0].path != "/v1/campaigns/"+campaign.String()+"/purchases" {
					t.Fatalf("%d requests: %v", len(requests), requests)
				}
				for i, r := range requests {
					if r.header.Get("Prefer") != "wait=30" || i > 0 && (r.method != http.MethodGet || r.path != "/v1/jobs/"+jobID.String()) {
						t.Errorf("request %d: %v", i+1, r)
					}
				}
			})
		})
	}
}

func TestCancelAndBuyHoldWaitForWhatTheyAskFor(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			state := client.JobStateQueued
			if n%2 == 0 {
				state = client.JobStateSucceeded
			}
			say(w, http.StatusOK, job(jobID, state))
			return true
		}
		hold := client.Hold{ID: jobID, CampaignID: campaign, UserID: "ada"}
		if j, err := s.client().BuyHold(t.Context(), hold, one.Payment); err != nil || !j.Final() {
			t.Errorf("%+v, %v", j, err)
		}
		if j, err := s.client().Cancel(t.Context(), jobID, client.CancellationRequest{Reason: "why not"}); err != nil || !j.Final() {
			t.Errorf("%+v, %v", j, err)
		}
		requests := s.seen()
		if len(requests) != 4 || requests[2].path != "/v1/purchases/"+jobID.String()+"/cancel" || !strings.Contains(requests[2].body, "why not") ||
			!strings.Contains(requests[0].body, `"hold_id":"`+jobID.String()) || !strings.Contains(requests[0].body, `"user_id":"ada"`) {
			t.Errorf("%v", requests)
		}
	})
}

func TestWaitGoesOnWhenAJobAwaitsAnAction(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			state := client.JobStateAwaitingAction
			if n == 3 {
				state = client.JobStateSucceeded
			}
			say(w, http.StatusAccepted, job(jobID, state))
			return true
		}
		if j, err := s.client().Wait(t.Context(), jobID); err != nil || !j.Final() {
			t.Errorf("%+v, %v", j, err)
		}
	})
}

func TestAServerThatDoesNotWaitIsNotAskedAllTheTime(t *testing.T) {
	for after, pause := range map[string]time.Duration{"": time.Second, "5": 5 * time.Second} {
		t.Run("Retry-After "+after, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
					state := client.JobStateQueued
					if n == 4 {
						state = client.JobStateSucceeded
					}
					if after != "" {
						w.Header().Set("Retry-After", after)
					}
					say(w, http.StatusAccepted, job(jobID, state))
					return true
				}
				start := time.Now()
				if _, err := s.client().Wait(t.Context(), jobID); err != nil || time.Since(start) != 3*pause {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
			})
		})
	}
}

func TestADeadlineLeavesTimeToLearnTheJob(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			wait, _ := time.ParseDuration(strings.TrimPrefix(r.Header.Get("Prefer"), "wait=") + "s")
			hold(r, wait)
			say(w, http.StatusAccepted, job(jobID, client.JobStateQueued))
			return true
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		j, err := s.client().Buy(ctx, campaign, one)
		if !errors.Is(err, context.DeadlineExceeded) || j.ID != jobID {
			t.Errorf("%+v, %v", j, err)
		}
		if got := s.seen()[0].header.Get("Prefer"); got != "wait=9" {
			t.Errorf("preferred %q", got)
		}
	})
}

func TestAJobTellsItsResultOrItsError(t *testing.T) {
	t.Parallel()
	if bought, err := job(jobID, client.JobStateSucceeded).Purchased(); err != nil || bought.Amount != 100 || bought.Positions[0].Column != 2 {
		t.Errorf("%+v, %v", bought, err)
	}
	failed := job(jobID, client.JobStateFailed)
	_, err := failed.Purchased()
	for _, err := range []error{err, failed.Err()} {
		if problem, ok := asError(err); !ok || problem.Code != client.CodeSoldOut || problem.Status != http.StatusConflict {
			t.Errorf("%v", err)
		}
	}
	failed.Problem = nil
	if problem, ok := asError(failed.Err()); !ok || problem.Code != client.CodeInternalError {
		t.Errorf("without a problem: %v", problem)
	}
	queued := job(jobID, client.JobStateQueued)
	if _, err := queued.Purchased(); !errors.Is(err, client.ErrNotFinal) || queued.Err() != nil {
		t.Errorf("%v, %v", err, queued.Err())
	}
	drawn := client.Job{ID: jobID, Kind: "draw", State: client.JobStateSucceeded,
		Result: json.RawMessage(`{"secret":"ab","winners":[{"prize":1,"layer":2,"column":null,"purchase_id":null,"name":"First"}]}`)}
	if d, err := drawn.Drawn(); err != nil || d.State != client.CampaignStateCompleted || len(d.Winners) != 1 || d.Winners[0].Column != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := job(jobID, client.JobStateSucceeded).Drawn(); err == nil {
		t.Errorf("a purchase has drawn %+v", d)
	}
	cancelled := client.Job{ID: jobID, Kind: "cancellation", State: client.JobStateSucceeded,
		Result: json.RawMessage(`{"purchase_id":"` + jobID.String() + `","state":"cancelled","positions":[{"layer":3,"column":2,"price":100}],"amount":100,"currency":"JPY"}`)}
	if c, err := cancelled.Cancelled(); err != nil || c.PurchaseID != jobID || c.Amount != 100 || c.Positions[0].Column != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	cancelled.Result = json.RawMessage(`{}`)
	if c, err := cancelled.Cancelled(); err == nil {
		t.Errorf("nothing was cancelled, and it is %+v", c)
	}
	if _, err := drawn.Purchased(); err == nil {
		t.Error("a draw has purchased something")
	}
	for _, result := range []string{"", "null", "{}", "[]", "7", `{"positions":null}`, `{"positions":{}}`, `{"positions":[`} {
		j := client.Job{ID: jobID, Kind: "purchase", State: client.JobStateSucceeded, Result: json.RawMessage(result)}
		if got, err := j.Purchased(); err == nil {
			t.Errorf("result %q is %+v", result, got)
		}
	}
}
