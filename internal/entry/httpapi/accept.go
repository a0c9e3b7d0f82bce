package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/idempotency"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/service/subscription"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// acceptor stores requests as jobs; concurrent requests share a transaction.
type acceptor struct {
	db         *pgxpool.Pool
	requests   *batch.Coalescer[job.Request, job.Accepted]
	dispatcher *queue.Dispatcher
	known      *idempotency.Requests
	remember   *batch.Coalescer[job.Accepted, struct{}]
	accepted   *prometheus.CounterVec
	replayed   prometheus.Counter
}

func newAcceptor(db *pgxpool.Pool, settings config.Accept, dispatcher *queue.Dispatcher, known *idempotency.Requests, registry prometheus.Registerer) *acceptor {
	a := &acceptor{
		db: db, dispatcher: dispatcher, known: known,
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_jobs_accepted_total", Help: "Jobs accepted by this process, by kind."}, []string{"kind"}),
		replayed: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_requests_replayed_total", Help: "Requests answered with the job of an earlier request with the same key."}),
	}
	registry.MustRegister(a.accepted, a.replayed)
	a.requests = batch.New(batch.Options{
		Size: settings.BatchSize, Linger: settings.BatchLinger, InFlight: settings.InFlight,
		Pending: settings.MaxPending, Timeout: settings.Timeout, Drain: acceptDrain, Whole: postgres.IsTransient,
	}, a.flush)
	a.remember = batch.New(batch.Options{
		Size: settings.BatchSize, InFlight: 1, Pending: settings.MaxPending, Timeout: time.Second, Whole: func(error) bool { return true },
	}, a.write)
	return a
}

// acceptDrain is how long waiting requests are still stored at shutdown, after
// their connections were closed.
const acceptDrain = 2 * time.Second

// flush commits requests as jobs. The work after the commit runs in the background,
// so that no request waits for Redis.
func (a *acceptor) flush(ctx context.Context, requests []job.Request) ([]job.Accepted, error) {
	accepted, messages, err := outbox.Accept(ctx, a.db, requests)
	if postgres.NothingSent(err) { // the connection was dead already: try a new one
		accepted, messages, err = outbox.Accept(ctx, a.db, requests)
	}
	if err != nil {
		return nil, err
	}
	failpoint.Hit("accept.committed", nil)
	a.dispatcher.Dispatch(outbox.Tasks(messages)...)
	for _, one := range accepted {
		if one.Replayed {
			a.replayed.Inc()
			a.rememberFinal(one.Job)
			continue
		}
		a.accepted.WithLabelValues(string(one.Job.Kind)).Inc()
		_ = a.remember.Submit(one) // full: Redis does not have it, Postgres does
	}
	return accepted, nil
}

// write stores the records of committed requests in Redis.
func (a *acceptor) write(ctx context.Context, accepted []job.Accepted) ([]struct{}, error) {
	records := make(map[idempotency.Request]idempotency.Record, len(accepted))
	for _, one := range accepted {
		record := idempotency.Record{State: idempotency.InProgress, Hash: one.Job.Hash, Job: one.Job.ID}
		if one.Job.State.Final() {
			if record.State = idempotency.Success; one.Job.State == job.Failed {
				record.State = idempotency.Failed
			}
			answer, err := json.Marshal(resource.Job(one.Job))
			if err != nil {
				return nil, err
			}
			record.Answer = answer
		}
		records[idempotency.Request{Client: one.Job.Client, Key: one.Job.Key}] = record
	}
	return make([]struct{}, len(accepted)), a.known.Remember(ctx, records)
}

func (a *acceptor) close() {
	a.requests.Close()
	a.remember.Close()
	a.known.Close()
}

// replay finds the job of an earlier request with the same key through Redis.
// answer is the final answer, when Redis has it. It can be trusted, because it is
// written only after the commit that made the job final. A job that was in progress
// is read from Postgres.
func (a *acceptor) replay(ctx context.Context, request job.Request) (j job.Job, answer []byte, ok bool) {
	record, found := a.known.Find(ctx, idempotency.Request{Client: request.Client, Key: request.Key})
	if !found || record.Hash != request.Hash {
		return job.Job{}, nil, false // only Postgres may refuse a different request, never a cache
	}
	if record.State != idempotency.InProgress {
		return job.Job{ID: record.Job}, record.Answer, true
	}
	j, err := job.Get(ctx, a.db, record.Job)
	if err != nil || j.Client != request.Client || j.Key != request.Key {
		return job.Job{}, nil, false
	}
	a.rememberFinal(j)
	return j, nil, true
}

// jobRemembered is the age up to which a job is stored in Redis. A record is kept for
// idempotency.request_ttl, 12 hours at most, so it is gone before the sweep old-records
// may delete its job, which is a day old then. After that the key is free for another
// job, and a record of the first must not answer for it.
const jobRemembered = 11 * time.Hour

// rememberFinal stores the answer of a final job in Redis, for later requests with
// the same key.
func (a *acceptor) rememberFinal(j job.Job) {
	if j.State.Final() && time.Since(j.AcceptedAt) < jobRemembered {
		_ = a.remember.Submit(job.Accepted{Job: j})
	}
}

// accept stores a request as a job and answers with the job: 202, or 200 with the
// final job for a client that prefers to wait for it. The job has to wait in the queue of
// its kind, and in those of the kinds in also.
func (s *Server) accept(ctx context.Context, request job.Request, also ...job.Kind) (jobAnswer, error) {
	queues := append([]job.Kind{request.Kind}, also...)
	c, err := callOf(ctx)
	if err != nil {
		return jobAnswer{}, err
	}
	request.ID, request.Client, request.Key, request.Hash, request.Trace = uuidv7.New(), c.client, c.key, c.fingerprint, c.trace
	wait, done, err := s.waitOf(c)
	if err != nil {
		return jobAnswer{}, err
	}
	defer done()
	wait.untilFinal = false // what the buyer has to do is news to whoever sends a request
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.settings.Accept.Timeout)
	defer cancel()
	if j, answer, ok := s.acceptor.replay(ctx, request); ok {
		s.acceptor.replayed.Inc()
		if answer != nil {
			return jobAnswer{status: wait.finalStatus(), id: j.ID, wait: wait, replayed: true, body: answer}, nil
		}
		return s.answerJob(ctx, j, wait, nil, true)
	}
	if overloaded := s.backlog.admit(queues...); overloaded != nil { // repeated requests still get their answer
		earlier, ok, err := job.OfKey(ctx, s.db, request)
		switch {
		case err != nil:
			return jobAnswer{}, err
		case !ok:
			return jobAnswer{}, overloaded
		case earlier.Reused:
			return jobAnswer{}, reused(earlier.Job)
		}
		return s.answerJob(ctx, earlier.Job, wait, nil, true)
	}
	var waiter *subscription.Waiter
	if wait.longest > 0 { // registered before the job exists, so that its end cannot be missed
		waiter = s.jobs.Waiter(request.ID)
		defer waiter.Stop()
	}
	accepted, err := s.acceptor.requests.Do(ctx, request)
	if err != nil {
		return jobAnswer{}, err
	}
	if accepted.Reused {
		return jobAnswer{}, reused(accepted.Job)
	}
	if accepted.Replayed {
		waiter = nil
	}
	return s.answerJob(ctx, accepted.Job, wait, waiter, accepted.Replayed)
}

// waitOf returns how long a request waits for its job, and what ends the count of it
// among the waits of its sender.
func (s *Server) waitOf(c *call) (wait preferredWait, done func(), err error) {
	if wait = waitIn(c.prefer, s.settings.API.MaxWait); wait.longest == 0 {
		return preferredWait{}, func() {}, nil
	}
	most := s.settings.API.WaitsPerClient
	if c.role == user {
		most = s.settings.API.WaitsPerUser
	}
	done, err = s.waits.Acquire(c.client, most)
	return wait, done, err
}

// reused refuses a key that was used for another request, which has made a job.
func reused(of job.Job) error {
	refusal := fault.New(fault.KeyReused, "this Idempotency-Key was used for a different request; use a fresh key")
	refusal.About = of.ID.String()
	return refusal
}

// answerJob waits for a job as long as the client prefers and answers a POST with
// it. With a waiter that was registered before the job existed, the job need not be
// read first; otherwise waiter is nil.
func (s *Server) answerJob(ctx context.Context, j job.Job, wait preferredWait, waiter *subscription.Waiter, replayed bool) (jobAnswer, error) {
	j, err := s.await(ctx, j, wait, waiter)
	if err != nil {
		return jobAnswer{}, err
	}
	answer := jobAnswer{status: wait.finalStatus(), id: j.ID, wait: wait, replayed: replayed}
	if !j.State.Final() {
		answer.status, answer.retryAfter = http.StatusAccepted, s.askAgainAfter(j)
	}
	answer.body, err = json.Marshal(resource.Job(j))
	return answer, err
}

// await returns the job when it is final or, unless the client waits for just that, awaits an
// action of the buyer; or the last known state of it when the wait is over or the client is
// gone. With a waiter the caller knows the job as it was when the waiter was registered.
func (s *Server) await(ctx context.Context, j job.Job, wait preferredWait, waiter *subscription.Waiter) (job.Job, error) {
	if wait.longest <= 0 || wait.enough(j) {
		return j, nil
	}
	c, err := callOf(ctx)
	if err != nil {
		return j, err
	}
	over := time.NewTimer(wait.longest)
	defer over.Stop()
	if waiter == nil {
		waiter = s.jobs.Waiter(j.ID)
		defer waiter.Stop()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.settings.API.RequestTimeout)
		defer cancel()
		if j, err = job.Get(ctx, s.db, j.ID); err != nil || wait.enough(j) {
			return j, err
		}
		waiter.Has(j)
	}
	present, leave := c.whilePresent(s.draining)
	defer leave()
	for {
		select {
		case j = <-waiter.Changes():
			if wait.enough(j) {
				return j, nil
			}
		case <-over.C:
			return j, nil
		case <-present.Done():
			return j, nil
		}
	}
}
