package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/job"
)

func jobJSON(j job.Job) contract.Job {
	d := contract.Job{ID: j.ID, Kind: string(j.Kind), State: contract.JobState(j.State), CampaignID: j.CampaignID, PurchaseID: purchaseOf(j),
		Attempts: j.Attempts, AcceptedAt: j.AcceptedAt, FinishedAt: j.FinishedAt, Result: j.Result, Problem: problemOfJob(j.Problem)}
	if j.Progress == nil {
		return d
	}
	if r := j.Progress.Refunds; r != nil { // stays, as a part of what has come of it
		d.Refunds = &contract.RefundProgress{Total: r.Total, Done: r.Done, Waiting: r.Waiting}
	}
	if j.State.Final() {
		return d
	}
	if a := j.Progress.NextAction; a != nil && j.State == job.AwaitingAction {
		d.NextAction = &contract.NextAction{Type: contract.NextActionType(a.Type), URL: a.URL, ExpiresAt: a.ExpiresAt}
	}
	if w := j.Progress.Waiting; w != nil {
		d.Waiting, d.RetryAt = &contract.Waiting{Reason: w.Reason, RetryAt: w.RetryAt}, &w.RetryAt
	}
	return d
}

// purchaseOf returns the purchase that a job is about: the one that it has begun, or that
// of its result.
func purchaseOf(j job.Job) *uuid.UUID {
	if j.PurchaseID != nil || j.Kind != job.KindPurchase && j.Kind != job.KindCancellation || len(j.Result) == 0 {
		return j.PurchaseID
	}
	var result struct {
		PurchaseID *uuid.UUID `json:"purchase_id"`
	}
	_ = json.Unmarshal(j.Result, &result) // what has no purchase has none
	return result.PurchaseID
}

// visibleJob returns a job that the caller may see.
func (s *Server) visibleJob(ctx context.Context, id uuid.UUID) (job.Job, error) {
	who, err := callOf(ctx)
	if err != nil {
		return job.Job{}, err
	}
	j, err := job.Get(ctx, s.db, id)
	if err == nil && who.role != operator && j.Client != who.client {
		return job.Job{}, fault.New(fault.NotFound, "there is no job %s", id)
	}
	return j, err
}

// GetJob answers 200 with a job. For a client that prefers to wait it waits until
// the job is final, or answers 202 when the time is over or the buyer has something to do.
func (s handlers) GetJob(ctx context.Context, r contract.GetJobRequestObject) (contract.GetJobResponseObject, error) {
	c, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	wait, done, err := s.waitOf(c)
	if err != nil {
		return nil, err
	}
	defer done()
	j, err := s.visibleJob(ctx, r.Job)
	if err != nil {
		return nil, err
	}
	answer := jobAnswer{status: http.StatusOK, id: j.ID, wait: wait}
	if j, err = s.await(ctx, j, answer.wait, nil); err != nil {
		return nil, err
	}
	if !j.State.Final() {
		answer.retryAfter = s.askAgainAfter(j)
		if answer.wait.longest > 0 {
			answer.status = http.StatusAccepted
		}
	}
	answer.body, err = json.Marshal(jobJSON(j))
	return answer, err
}
