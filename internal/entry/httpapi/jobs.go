package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/store/job"
)

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
func (s handlers) GetJob(ctx context.Context, r operations.GetJobRequestObject) (operations.GetJobResponseObject, error) {
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
	document := []contract.Job{resource.Job(j)}
	if r.Params.Include != nil {
		if err := s.includePurchases(ctx, c.caller, document); err != nil {
			return nil, err
		}
	}
	answer.body, err = json.Marshal(document[0])
	return answer, err
}
