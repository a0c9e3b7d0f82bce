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
	return contract.Job{ID: j.ID, Kind: string(j.Kind), State: contract.JobState(j.State), CampaignID: j.CampaignID, Attempts: j.Attempts,
		AcceptedAt: j.AcceptedAt, FinishedAt: j.FinishedAt, Result: j.Result, Problem: problemOfJob(j.Problem)}
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
// the job is final, or answers 202 when the time is over.
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
		answer.retryAfter = s.backlog.retryAfter(j.Kind)
		if answer.wait > 0 {
			answer.status = http.StatusAccepted
		}
	}
	answer.body, err = json.Marshal(jobJSON(j))
	return answer, err
}
