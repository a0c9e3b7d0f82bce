package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/platform/stream"
	"triprize/internal/purchase"
)

// visibleJob returns a job that the caller may see.
func (s *server) visibleJob(ctx context.Context, id uuid.UUID) (job.Job, error) {
	who := call.Of(ctx)
	j, err := job.Get(ctx, s.db, id)
	if err == nil && !who.MaySeeJob(j) {
		return job.Job{}, fault.New(fault.NotFound, "there is no job %s", id)
	}
	return j, err
}

// GetJob answers 200 with a job. For a client that prefers to wait it waits until
// the job is final, or answers 202 when the time is over or the buyer has something to do.
func (s *server) GetJob(ctx context.Context, r operations.GetJobRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	wait, done, err := s.waitOf(c)
	if err != nil {
		return nil, err
	}
	defer done()
	j, err := s.visibleJob(ctx, r.Job)
	if err != nil {
		return nil, err
	}
	if !j.State.Final() {
		c.EndShare()
	}
	answer := response.Result{Status: http.StatusOK, Job: j.ID, Wait: wait}
	if j, err = s.await(ctx, j, answer.Wait, nil); err != nil {
		return nil, err
	}
	if !j.State.Final() {
		answer.RetryAfter = s.askAgainAfter(j)
		if answer.Wait.Longest > 0 {
			answer.Status = http.StatusAccepted
		}
	}
	document := []contract.Job{resource.Job(j)}
	if r.Params.Include != nil {
		if err := s.includePurchases(ctx, c.Caller, document); err != nil {
			return nil, err
		}
	}
	answer.Body, err = json.Marshal(document[0])
	return answer, err
}

// ListJobs answers with one page of the jobs of the caller's client; for operators, of all; for users
// with a token, of their own.
func (s *server) ListJobs(ctx context.Context, r operations.ListJobsRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	page, err := response.ListPage(r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	f := job.Filter{CampaignID: response.ValueOf(r.Params.CampaignID), UserID: response.ValueOf(r.Params.UserID), Kind: job.Kind(response.ValueOf(r.Params.Kind)),
		State: job.State(response.ValueOf(r.Params.State)), Code: fault.Code(response.ValueOf(r.Params.Code)),
		Key: response.ValueOf(r.Params.IdempotencyKey), Reference: response.ValueOf(r.Params.Reference)}
	if r.Params.Code != nil && !f.Code.Known() {
		return nil, fault.Invalid(fault.Field{Pointer: "?code", Detail: "must be the code of a problem: see /problems"})
	}
	if f.Code != "" && f.State != "" && f.State != job.Failed {
		return nil, fault.Invalid(fault.Field{Pointer: "?code", Detail: "requires state failed: only failed jobs have a problem"})
	}
	if f.Code != "" {
		f.State = job.Failed
	}
	if !who.Role.SeesAll() {
		f.Client, f.KeyScope = who.App, who.KeyScope()
	}
	if f.KeyScope != "" { // along the user's jobs: its app may have millions
		if f.UserID != "" && f.UserID != who.User {
			return operations.ListJobs200(contract.JobList{Jobs: []contract.Job{}}, nil)
		}
		f.UserID = who.User
	}
	list, next, err := job.List(ctx, s.db, f, page)
	if err != nil {
		return nil, err
	}
	answer := contract.JobList{Jobs: response.Documents(list, resource.Job), NextCursor: response.ListCursor(next)}
	if r.Params.Include != nil {
		err = s.includePurchases(ctx, who.Caller, answer.Jobs)
	}
	return operations.ListJobs200(answer, err)
}

// includePurchases adds to jobs the purchases that they are about, as far as the caller may
// see them.
func (s *server) includePurchases(ctx context.Context, who call.Caller, jobs []contract.Job) error {
	var ids []uuid.UUID
	for _, j := range jobs {
		if j.PurchaseID != nil && !slices.Contains(ids, *j.PurchaseID) {
			ids = append(ids, *j.PurchaseID)
		}
	}
	found, err := purchase.GetAll(ctx, s.db, who.Grant(), ids)
	if err != nil {
		return err
	}
	documents, err := s.purchaseDocuments(ctx, who, found, false)
	if err != nil {
		return err
	}
	byID := make(map[uuid.UUID]*contract.Purchase, len(documents))
	for i := range documents {
		byID[documents[i].ID] = &documents[i]
	}
	for i, j := range jobs {
		if j.PurchaseID != nil {
			jobs[i].Purchase = byID[*j.PurchaseID]
		}
	}
	return nil
}

func (s *server) StreamJob(ctx context.Context, r operations.StreamJobRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	waiter := s.jobs.Waiter(r.Job) // before the job is read, so that nothing can be missed
	now, err := s.visibleJob(ctx, r.Job)
	if err != nil {
		waiter.Stop()
		return nil, err
	}
	waiter.Has(now.Status)
	seen := r.Params.LastEventID != nil && *r.Params.LastEventID == job.VersionOf(now.Status)
	if seen && now.State.Final() {
		waiter.Stop()
		return response.Stream{Over: true}, nil
	}
	first := []job.Status{now.Status}
	if seen {
		first = nil
	}
	return s.openStream(who, waiter.Stop, func(ctx context.Context, w *bufio.Writer) {
		event := func(s job.Status) stream.Event {
			now.Status = s
			data, _ := json.Marshal(resource.Job(now)) // its result is valid JSON: it is from a json column
			return stream.Event{ID: job.VersionOf(s), Name: "job", Data: data, Last: s.State.Final()}
		}
		_ = stream.Relay(ctx, w, s.settings.Streams, waiter.Changes(), event, first...) // the client is gone
	})
}
