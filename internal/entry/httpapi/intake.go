package httpapi

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/trail"
)

// context returns the context for the database work of one request.
func (s *server) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.settings.API.RequestTimeout)
}

func (s *server) requireCampaign(ctx context.Context, id uuid.UUID) error {
	_, err := s.terms.Of(ctx, s.db, id)
	return err
}

// openStream answers with a stream, if the caller may have one more. stop releases what it uses.
func (s *server) openStream(who *call.Call, stop func(), run func(ctx context.Context, w *bufio.Writer)) (operations.Answer, error) {
	release, err := s.streams.enter(who.Caller, s.streamsOf(who.Caller))
	if err != nil {
		stop()
		return nil, err
	}
	return response.Stream{Call: who, Draining: s.draining, Stop: func() { stop(); release() }, Run: run}, nil
}

// streamsOf is how many streams a caller may have open here: an app has many users. Without
// a rate of addresses, all anonymous callers may have the address of a proxy.
func (s *server) streamsOf(who call.Caller) int {
	switch {
	case who.Role == resource.User:
		return cmp.Or(s.settings.Streams.MaxPerUser, 20)
	case who.Role == resource.Anonymous && s.settings.Limits.AddressRate > 0:
		return streamsOfAddress
	}
	return cmp.Or(s.settings.Streams.MaxPerClient, max(s.settings.API.MaxConnections/5, 1))
}

// maxStreams is how many connections streams may have, and how many the waits of a client: the others are for other requests.
func maxStreams(api config.API) int { return max(api.MaxConnections/5*4, 1) }

// streamsOfAddress is how many streams one address may have open without a key.
const streamsOfAddress = 4

// created are the commands that create something, and its path; its id follows. Empty: it cannot be read.
var created = map[job.Kind]string{job.KindCampaignCreate: "/v1/campaigns/", job.KindHoldCreate: "/v1/holds/", job.KindEndpointCreate: "/v1/webhook-endpoints/",
	job.KindWalletOpen: "/v1/wallets/", job.KindAuthorizationCreate: "/v1/wallets/{wallet}/authorizations/", job.KindTransferCreate: ""}

// command returns the job request of a command, which is done and answered at once.
func (s *server) command(ctx context.Context, kind job.Kind) job.Request {
	c, status := call.Of(ctx), http.StatusOK
	if _, creates := created[kind]; creates {
		status = http.StatusCreated
	}
	return job.Request{ID: uuidv7.New(), Client: c.App, Key: c.Key, Hash: c.Fingerprint, Kind: kind,
		Retention: s.settings.Retention.Jobs, HTTPStatus: status, Actor: trail.Of(ctx), Origin: job.Origin{RequestID: c.RequestID, Traceparent: c.Traceparent}}
}

// commandDone answers with the result of a command, or of the first request with
// its key.
func (s *server) commandDone(ctx context.Context, done job.Accepted, err error) (response.Result, error) {
	if err = cmp.Or(err, done.Err); err != nil {
		return response.Result{}, err
	}
	call.Of(ctx).Job = done.Job.ID
	if done.Replayed && !done.Reused {
		s.intake.Replayed()
	}
	switch {
	case done.Reused:
		return response.Result{}, reused(done.Job)
	case done.Job.Problem != nil && done.Replayed:
		return response.Result{}, &replayedRefusal{done.Job.Problem.Err()}
	case done.Job.Problem != nil:
		return response.Result{}, done.Job.Problem.Err()
	case done.Job.Kind == job.KindApproval:
		return s.approvalDone(ctx, done)
	}
	answer := response.Result{Status: http.StatusOK, Body: done.Job.Result, Replayed: done.Replayed}
	if done.Job.HTTPStatus != nil {
		answer.Status = *done.Job.HTTPStatus
	}
	if done.Job.Kind == job.KindWalletCredit || done.Job.Kind == job.KindWalletDebit { // its version is the entity tag
		var document struct{ Version int64 }
		if err := json.Unmarshal(answer.Body, &document); err != nil {
			return response.Result{}, err
		}
		answer.Version = &document.Version
	}
	if path := created[done.Job.Kind]; path != "" {
		var made struct {
			ID     uuid.UUID
			Wallet uuid.UUID `json:"wallet_id"`
		}
		if err := json.Unmarshal(answer.Body, &made); err != nil {
			return response.Result{}, err
		}
		answer.Location = strings.Replace(path, "{wallet}", made.Wallet.String(), 1) + made.ID.String()
	}
	return answer, nil
}

// replayedRefusal is the refusal of an earlier request with the same key.
type replayedRefusal struct{ error }

// Unwrap returns the refusal.
func (r *replayedRefusal) Unwrap() error { return r.error }

// accept stores a request as a job and answers with the job: 202, or 200 with the
// final job for a client that prefers to wait for it. The job has to wait in the queue of
// its kind, and in those of the kinds in also.
func (s *server) accept(ctx context.Context, request job.Request, also ...job.Kind) (response.Result, error) {
	c := call.Of(ctx)
	request.ID, request.Client, request.Key, request.Hash = uuidv7.New(), c.App, c.Key, c.Fingerprint
	request.Origin, request.Actor = job.Origin{RequestID: c.RequestID, Traceparent: c.Traceparent}, trail.Of(ctx)
	wait, done, err := s.waitOf(c)
	if err != nil {
		return response.Result{}, err
	}
	defer done()
	made, waiter, err := s.intake.Accept(ctx, request, job.Asked{Also: also, Waits: wait.Longest > 0, Bound: func(ctx context.Context, id uuid.UUID) (end func(), err error) {
		c.EndShare()
		leave, err := s.shares.enter(ctx, s.shares.jobs, c.Caller)
		if err != nil {
			return nil, err
		}
		return s.shares.follow(id, leave), nil
	}})
	if err != nil {
		return response.Result{}, err
	}
	if waiter != nil {
		defer waiter.Stop()
	}
	if made.Reused {
		return response.Result{}, reused(made.Job)
	}
	if made.Job.Kind == job.KindApproval { // it was asked for with this key
		return s.commandDone(ctx, made, nil)
	}
	c.EndShare()
	return s.answerJob(ctx, c, made.Job, wait, waiter, made.Replayed)
}

// waitOf returns how long a request waits for its job, and the function that releases its slot among
// the waits of its sender.
func (s *server) waitOf(c *call.Call) (wait response.Prefer, done func(), err error) {
	if wait = response.PreferOf(c.Prefer, s.settings.API.MaxWait); wait.Longest == 0 {
		return response.Prefer{}, func() {}, nil
	}
	limit := maxStreams(s.settings.API)
	if c.Role == resource.User {
		limit = cmp.Or(s.settings.API.WaitsPerUser, 50)
	}
	wait.UntilFinal = wait.UntilFinal && c.IsRead
	done, err = s.waits.Acquire(c.Client, limit)
	return wait, done, err
}

// reused refuses a key that was used for another request, which has made a job.
func reused(of job.Job) error {
	refusal := fault.New(fault.KeyReused, "this Idempotency-Key was used for a different request; use a fresh key")
	refusal.About = fault.About{Kind: fault.AboutJob, ID: of.ID.String()}
	return refusal
}

// answerJob waits for a job as long as the client prefers and answers a POST with
// it. With a waiter that was registered before the job existed, the job need not be
// read first; otherwise waiter is nil.
func (s *server) answerJob(ctx context.Context, c *call.Call, j job.Job, wait response.Prefer, waiter *job.Waiter, replayed bool) (response.Result, error) {
	c.Job = j.ID
	j, err := s.await(ctx, j, wait, waiter)
	if err != nil {
		return response.Result{}, err
	}
	answer := response.Result{Status: wait.FinalStatus(), Job: j.ID, Wait: wait, Replayed: replayed}
	if !j.State.Final() {
		answer.Status, answer.RetryAfter = http.StatusAccepted, s.askAgainAfter(j)
	}
	answer.Body, err = json.Marshal(resource.Job(j))
	return answer, err
}

// unwatched is how long a request waits before its connection is watched: most waits are
// shorter, and watching costs more than all else of a wait.
const unwatched = time.Second / 2

// await returns the job when it is final or, unless the client waits for just that, awaits an
// action of the buyer; or the last known state of it when the wait is over or the client is
// gone. With a waiter the caller knows the job as it was when the waiter was registered.
func (s *server) await(ctx context.Context, j job.Job, wait response.Prefer, waiter *job.Waiter) (_ job.Job, err error) {
	if wait.Longest <= 0 || wait.Enough(j) {
		return j, nil
	}
	over := time.NewTimer(min(wait.Longest, unwatched))
	defer over.Stop()
	if waiter == nil {
		waiter = s.jobs.Waiter(j.ID)
		defer waiter.Stop()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.settings.API.RequestTimeout)
		defer cancel()
		if j, err = job.Get(ctx, s.db, j.ID); err != nil || wait.Enough(j) {
			return j, err
		}
		waiter.Has(j.Status)
	}
	present, rest := s.draining, wait.Longest-unwatched
	for {
		select {
		case j.Status = <-waiter.Changes():
			if wait.Enough(j) {
				return j, nil
			}
		case <-over.C:
			if rest <= 0 {
				return j, nil
			}
			over.Reset(rest)
			rest = 0
			var leave func()
			present, leave = call.Of(ctx).WhilePresent(s.draining)
			defer leave()
		case <-present.Done():
			return j, nil
		}
	}
}

// actionRetryAfter is after how many seconds to ask again whether the buyer has done what
// is awaited.
const actionRetryAfter = 2

// askAgainAfter returns after how many seconds a client should ask for a job again: not
// before it goes on, if that is known.
func (s *server) askAgainAfter(j job.Job) int {
	seconds := s.queueWaits.RetryAfter(j.Kind)
	if j.State == job.AwaitingAction {
		seconds = max(seconds, actionRetryAfter)
	}
	if j.Progress != nil && j.Progress.Waiting != nil {
		seconds = max(seconds, int(math.Ceil(time.Until(j.Progress.Waiting.RetryAt).Seconds())))
	}
	return min(seconds, job.MaxRetryAfter)
}
