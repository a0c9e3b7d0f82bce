package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/tracing"
	"triprize/internal/trail"
)

// task is one request in the queue of its campaign.
type task struct {
	HoldRequest
	kind change
	hold uuid.UUID // to be extended or released

	fresh  bool       // it is decided by this transaction, and no retry
	answer job.Answer // to its key
	result
}

type change int

const (
	create change = iota
	extend
	release // has no idempotency key: to release twice is to release once
)

type result struct {
	job.Accepted
	released bool // the hold, by this task
}

// flush does tasks of one campaign, in one transaction.
func (s *Holds) flush(ctx context.Context, f batch.FlushInfo[uuid.UUID], tasks []*task) ([]result, error) {
	ctx = postgres.As(ctx, postgres.TxHold)
	began := s.taken.now()                                                // before anything is read
	db := s.gate.FirstTry(s.rowWait / time.Duration(1+f.Waiting/flushes)) // the more campaigns wait for a flush, the shorter
	if f.Retry {
		db = s.gate.Retry(s.retryWait)
	}
	out, err := s.do(ctx, db, tasks)
	if err != nil {
		return nil, fmt.Errorf("inventory.Holds: %w", err)
	}
	failpoint.Hit("holds.committed", nil)
	if out != nil {
		s.cache(out, began)
	}
	results := make([]result, len(tasks))
	for i, one := range tasks {
		results[i] = one.result
	}
	return results, nil
}

// do claims the keys of tasks, decides those whose key is new, and records their
// answers. It returns what it has written; nil: nothing.
func (s *Holds) do(ctx context.Context, db postgres.Beginner, tasks []*task) (out *effects, err error) {
	var keyed []*task
	var jobs []job.Request
	for _, one := range tasks {
		if one.fresh = one.kind == release; !one.fresh {
			keyed, jobs = append(keyed, one), append(jobs, one.Job)
		}
	}
	ctx, spans := tracing.Batch(ctx, "hold", len(tasks), job.TracesOf(jobs))
	defer func() { spans.End(err) }()
	decide := func(tx pgx.Tx) (err error) {
		out, err = s.decide(ctx, tx, tasks)
		return err
	}
	if len(keyed) > 0 {
		done, err := job.OnceEach(ctx, db, jobs, func(tx pgx.Tx, fresh []int) ([]job.Answer, error) {
			for _, i := range fresh {
				keyed[i].fresh = true
			}
			err := decide(tx)
			answers := make([]job.Answer, len(fresh))
			for at, i := range fresh {
				answers[at] = keyed[i].answer
			}
			return answers, err
		})
		if err != nil {
			return nil, err
		}
		for i, one := range keyed {
			one.Accepted = done[i]
		}
	}
	if out == nil && len(keyed) < len(tasks) { // every other task is a retry
		err = postgres.InTx(ctx, db, decide)
	}
	return out, err
}

// decide decides and writes. It locks the campaign, ends the holds that are over,
// extends and releases, makes holds of what is free then, each in order of arrival.
func (s *Holds) decide(ctx context.Context, tx pgx.Tx, tasks []*task) (*effects, error) {
	campaigns := []uuid.UUID{tasks[0].Job.CampaignID}
	names := []string{campaigns[0].String()} // for failpoints, with the users
	var changed, created []*task
	var requests []HoldRequest
	var holds []uuid.UUID
	for _, one := range tasks {
		switch {
		case !one.fresh:
			continue
		case one.kind == create:
			created, requests = append(created, one), append(requests, one.HoldRequest)
		default:
			changed, holds = append(changed, one), append(holds, one.hold)
		}
		names = append(names, one.Job.UserID)
	}
	var b pgx.Batch
	campaign.QueueLock(&b, campaigns, postgres.WaitForLocks, func(uuid.UUID) {})
	f, err := s.readSnapshot(ctx, tx, &b, campaigns, requests, holds)
	if err != nil {
		return nil, err
	}
	out := &effects{over: f.over, changes: make(campaign.Changes)}
	for _, one := range changed {
		if one.kind == extend {
			one.answer = s.extend(f, out, one)
		} else {
			one.released, one.Err = s.release(f, out, one)
		}
	}
	var ends, writes pgx.Batch
	QueueExpire(&ends, out.over, out.changes)
	queueExtend(&ends, out.extended, out.changes)
	QueueRelease(&ends, out.released, out.changes)
	if err := postgres.Send(ctx, tx, &ends); err != nil {
		return nil, fmt.Errorf("inventory.Holds.decide: %w", err)
	}
	if err := s.create(ctx, tx, f, out, created); err != nil {
		return nil, err
	}
	for _, h := range out.made {
		out.changes.Add(h.CampaignID, campaign.Counts{Reserved: len(h.Picked)})
	}
	out.changes.Queue(&writes)
	for _, one := range changed {
		if one.released && one.Job.Actor != nil {
			writes.Queue(trail.Insert("$1"), trail.Rows(one.Job.Actor.Entry(uuid.Nil, one.answer.Before, map[string]any{"state": HoldReleased})))
		}
	}
	if err = queueHold(&writes, out.made, f.quota); err == nil {
		err = postgres.Send(ctx, tx, &writes)
	}
	if err != nil {
		return nil, fmt.Errorf("inventory.Holds.decide: %w", err)
	}
	failpoint.Hit("holds.commit", func() []string { return names })
	return out, nil
}

// effects is what a transaction writes, and what the process caches after its commit.
type effects struct {
	over     []*Hold // holds that it ends
	extended []*Hold
	released []*Hold
	made     []newHold
	changes  campaign.Changes
	named    map[PositionID]*StoredPosition // positions that requests named, as they were before
}

// cache caches, after the commit, which positions are taken and which are free
// again, and counts holds. began is before the transaction read anything.
func (s *Holds) cache(e *effects, began time.Time) {
	for _, h := range e.released {
		for _, p := range h.Positions {
			s.taken.remove(PositionID{CampaignID: h.CampaignID, Position: p.Position})
		}
	}
	for _, p := range e.named {
		if p.State != Available {
			s.taken.update(p, began)
		}
	}
	for _, h := range e.made {
		for _, p := range h.Picked {
			s.taken.add(p.PositionID, began, h.ExpiresAt.Sub(h.CreatedAt), h.UserID)
		}
	}
	s.metrics.Count(holdsMade, len(e.made))
	s.metrics.Count(HoldsReclaimed, len(e.over))
	s.metrics.Count(holdsExtended, len(e.extended))
	s.metrics.Count(HoldsReleased, len(e.released))
}
