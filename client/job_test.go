//go:build go1.25

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize.example/client"
)

// turn is an answer about a job.
type turn struct {
	state client.JobState
	held  time.Duration // before it is given
	after string        // Retry-After
}

func TestAJobIsWaitedForUntilItIsFinalOrItsBuyerHasToAct(t *testing.T) {
	const queued, awaiting, succeeded, failed = client.JobStateQueued, client.JobStateAwaitingAction, client.JobStateSucceeded, client.JobStateFailed
	const held = 30 * time.Second
	type call = func(context.Context, *client.Client) (client.Job, error)
	var (
		buy = func(ctx context.Context, c *client.Client) (client.Job, error) { return c.Buy(ctx, campaign, one) }
		pay = func(ctx context.Context, c *client.Client) (client.Job, error) {
			return c.Pay(ctx, jobID, client.PaymentTry{})
		}
		wait   = func(ctx context.Context, c *client.Client) (client.Job, error) { return c.Wait(ctx, jobID) }
		cancel = func(ctx context.Context, c *client.Client) (client.Job, error) {
			return c.Cancel(ctx, jobID, client.CancellationRequest{})
		}
	)
	const get, untilFinal = " GET /v1/jobs/JOB Prefer: wait=30", "; until=final"
	for name, c := range map[string]struct {
		call
		turns []turn
		want  []string
	}{
		"a purchase": {buy, []turn{{queued, held, ""}, {queued, held, ""}, {queued, held, ""}, {succeeded, 0, ""}},
			[]string{"0s POST /v1/campaigns/CAMPAIGN/purchases Prefer: wait=30", "30s" + get, "1m0s" + get, "1m30s" + get}},
		"a purchase that fails":        {buy, []turn{{queued, held, ""}, {failed, 0, ""}}, []string{"0s POST /v1/campaigns/CAMPAIGN/purchases Prefer: wait=30", "30s" + get}},
		"a purchase, at once":          {buy, []turn{{succeeded, 0, ""}}, []string{"0s POST /v1/campaigns/CAMPAIGN/purchases Prefer: wait=30"}},
		"a buyer who has to act":       {buy, []turn{{queued, held, ""}, {awaiting, 0, ""}}, []string{"0s POST /v1/campaigns/CAMPAIGN/purchases Prefer: wait=30", "30s" + get}},
		"another card":                 {pay, []turn{{queued, held, ""}, {succeeded, 0, ""}}, []string{"0s POST /v1/purchases/JOB/payment Prefer: wait=30", "30s" + get}},
		"another card, declined":       {pay, []turn{{awaiting, 0, ""}}, []string{"0s POST /v1/purchases/JOB/payment Prefer: wait=30"}},
		"a cancellation":               {cancel, []turn{{queued, held, ""}, {succeeded, 0, ""}}, []string{"0s POST /v1/purchases/JOB/cancel Prefer: wait=30", "30s" + get + untilFinal}},
		"to the end, whoever acts":     {wait, []turn{{awaiting, held, ""}, {awaiting, held, ""}, {succeeded, 0, ""}}, []string{"0s" + get + untilFinal, "30s" + get + untilFinal, "1m0s" + get + untilFinal}},
		"a server that does not wait":  {wait, []turn{{queued, 0, ""}, {queued, 0, ""}, {succeeded, 0, ""}}, []string{"0s" + get + untilFinal, "1s" + get + untilFinal, "2s" + get + untilFinal}},
		"a server that says how often": {wait, []turn{{queued, 0, "5"}, {queued, 0, "5"}, {succeeded, 0, ""}}, []string{"0s" + get + untilFinal, "5s" + get + untilFinal, "10s" + get + untilFinal}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
					now := c.turns[n-1]
					hold(r, now.held)
					if now.after != "" {
						w.Header().Set("Retry-After", now.after)
					}
					say(w, http.StatusAccepted, job(jobID, now.state))
					return true
				}
				start := time.Now()
				j, err := c.call(t.Context(), s.client())
				var asked []string
				for _, r := range s.seen() {
					asked = append(asked, r.at.Sub(start).String()+" "+r.text())
				}
				if err != nil || j.ID != jobID || j.State != c.turns[len(c.turns)-1].state || !slices.Equal(asked, c.want) {
					t.Errorf("%s, %v, after %q", j.State, err, asked)
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
	type result = func(j client.Job) (string, error)
	var (
		purchased = func(j client.Job) (string, error) {
			p, err := j.Purchased()
			return fmt.Sprint(p.Amount, len(p.Positions)), err
		}
		cancelled = func(j client.Job) (string, error) {
			c, err := j.Cancelled()
			return fmt.Sprint(c.Amount, len(c.Positions)), err
		}
		drawn = func(j client.Job) (string, error) {
			d, err := j.Drawn()
			return fmt.Sprintf("%s %d", d.State, len(d.Winners)), err
		}
		over = func(j client.Job) (string, error) {
			c, err := j.CampaignCancelled()
			return fmt.Sprintf("%s %d %d %d %d", c.State, c.Refunded.Wallet, c.Refunded.Card, c.Refunded.External, c.Waiting), err
		}
		why = func(j client.Job) (string, error) { return "", j.Err() }
	)
	succeeded := func(kind, result string) string {
		return `{"state":"succeeded","kind":"` + kind + `","result":` + result + `}`
	}
	const positions = `{"positions":[{"layer":3,"column":2,"price":100}],"amount":100,"currency":"JPY"}`
	const soldOut = `{"state":"failed","kind":"purchase","problem":{"code":"sold-out","status":409,"detail":"every position is sold"}}`
	for _, c := range []struct {
		result
		job, want, fails string
	}{
		{purchased, succeeded("purchase", positions), "100 1", ""},
		{cancelled, succeeded("cancellation", positions), "100 1", ""},
		{drawn, succeeded("draw", `{"secret":"ab","winners":[{"prize":1,"layer":2,"column":null,"purchase_id":null,"name":"First"}]}`), "completed 1", ""},
		{over, succeeded("campaign-cancellation", `{"state":"cancelled","refunded":{"wallet":10,"card":4,"external":2},"waiting":1}`), "cancelled 10 4 2 1", ""},
		{purchased, succeeded("draw", positions), "", "is a draw, not a purchase"},
		{drawn, succeeded("purchase", positions), "", "is a purchase, not a draw"},
		{cancelled, succeeded("campaign-cancellation", positions), "", "not a cancellation"},
		{cancelled, succeeded("cancellation", "{}"), "", "without positions"},
		{purchased, `{"state":"queued","kind":"purchase"}`, "", client.ErrNotFinal.Error()},
		{why, `{"state":"queued","kind":"purchase"}`, "", ""},
		{purchased, soldOut, "", "409 sold-out every position is sold"},
		{why, soldOut, "", "409 sold-out every position is sold"},
		{why, `{"state":"failed"}`, "", "500 internal-error"},
		{purchased, succeeded("purchase", "null"), "", "without positions"},
		{purchased, succeeded("purchase", "{}"), "", "without positions"},
		{purchased, succeeded("purchase", "[]"), "", "cannot be used"},
		{purchased, succeeded("purchase", "7"), "", "cannot be used"},
		{purchased, succeeded("purchase", `{"positions":null}`), "", "without positions"},
		{purchased, succeeded("purchase", `{"positions":{}}`), "", "cannot be used"},
	} {
		var j client.Job
		if err := json.Unmarshal([]byte(c.job), &j); err != nil {
			t.Fatal(err)
		}
		if got, err := c.result(j); (err == nil) != (c.fails == "") || err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %s, %v", c.job, got, err)
		}
	}
	j := job(jobID, client.JobStateSucceeded)
	for _, result := range []string{"", `{"positions":[`} {
		if j.Result = json.RawMessage(result); errOf(j.Purchased()) == nil {
			t.Errorf("result %q is a purchase", result)
		}
	}
	j = client.Job{State: client.JobStateFailed, Problem: &client.Problem{Code: client.CodePaymentDeclined, DeclineCode: "insufficient_funds", Advice: "try_again_later"}}
	if declined, ok := asError(j.Err()); !ok || declined.DeclineCode != "insufficient_funds" || declined.Advice != "try_again_later" {
		t.Errorf("%+v", declined)
	}
}
