package inventory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/tracing"
)

// task is one request in the queue of its campaign: for a new hold, or to extend or
// release one.
type task struct {
	HoldRequest
	kind change
	hold uuid.UUID // to be extended or released
}

type change int

const (
	create change = iota
	extend
	release // has no idempotency key: to release twice is to release once
)

// result is the outcome of a task.
type result struct {
	job.Done
	released bool // the hold, by this task
}

// flush does tasks of one campaign, in one transaction.
func (s *Holds) flush(ctx context.Context, f batch.FlushInfo[uuid.UUID], tasks []task) ([]result, error) {
	ctx = postgres.As(ctx, postgres.TxHold)
	began := s.taken.now() // before anything is read
	t := &transaction{service: s, tasks: tasks, results: make([]result, len(tasks))}
	db := s.gate.FirstTry(s.rowWait / time.Duration(1+f.Waiting/flushes)) // the more campaigns wait for a flush, the shorter
	if f.Retry {
		db = s.gate.Retry(s.retryWait)
	}
	if err := t.run(ctx, db); err != nil {
		return nil, fmt.Errorf("inventory.Holds: %w", err)
	}
	failpoint.Hit("holds.committed", nil)
	if t.effects != nil {
		s.cache(t.effects, began)
	}
	return t.results, nil
}

// transaction is what one flush does.
type transaction struct {
	service *Holds
	tasks   []task
	results []result
	effects *effects // nil: none
}

// run claims the keys of tasks, decides those whose key is new, and records their
// answers. Releases have no key.
func (t *transaction) run(ctx context.Context, db postgres.Beginner) (err error) {
	var keyed, unkeyed []int
	var jobs []job.Request
	for i, one := range t.tasks {
		if one.kind == release {
			unkeyed = append(unkeyed, i)
			continue
		}
		keyed, jobs = append(keyed, i), append(jobs, one.Job)
	}
	ctx, spans := tracing.Batch(ctx, "hold", len(t.tasks), job.TracesOf(jobs))
	defer func() { spans.End(err) }()
	decided := false
	if len(keyed) > 0 {
		done, err := job.OnceEach(ctx, db, jobs, func(tx pgx.Tx, fresh []int) ([]job.Answer, error) {
			decided = true
			todo := make([]int, len(fresh))
			for at, i := range fresh {
				todo[at] = keyed[i]
			}
			return t.decide(ctx, tx, todo, unkeyed)
		})
		if err != nil {
			return err
		}
		for at, i := range keyed {
			t.results[i].Done = done[at]
		}
	}
	if decided || len(unkeyed) == 0 {
		return nil
	}
	return postgres.InTx(ctx, db, func(tx pgx.Tx) error { // every other task is a retry
		_, err := t.decide(ctx, tx, nil, unkeyed)
		return err
	})
}

// decide decides and writes. It locks the campaign, ends the holds that are over,
// extends and releases, makes holds of what is free then, each in order of arrival,
// and returns the answers to the keyed tasks.
func (t *transaction) decide(ctx context.Context, tx pgx.Tx, keyed, unkeyed []int) ([]job.Answer, error) {
	todo := append(slices.Clone(keyed), unkeyed...)
	slices.Sort(todo) // the order of arrival
	f, err := t.lock(ctx, tx, todo)
	if err != nil {
		return nil, err
	}
	out := newEffects(f)
	answers := make([]job.Answer, len(t.tasks))
	for _, i := range todo {
		switch one := t.tasks[i]; one.kind {
		case create:
		case extend:
			answers[i] = t.service.extend(f, out, one)
		case release:
			t.results[i].released, t.results[i].Err = t.service.release(f, out, one)
		}
	}
	if err := out.end(ctx, tx); err != nil {
		return nil, err
	}
	if err := t.create(ctx, tx, f, out, todo, answers); err != nil {
		return nil, err
	}
	if err := out.write(ctx, tx, f.quota); err != nil {
		return nil, err
	}
	t.effects = out
	failpoint.Hit("holds.commit", func() []string { return t.names(todo) })
	of := make([]job.Answer, len(keyed))
	for at, i := range keyed {
		of[at] = answers[i]
	}
	return of, nil
}

// lock locks the campaign and reads the snapshot for tasks.
func (t *transaction) lock(ctx context.Context, tx pgx.Tx, todo []int) (*snapshot, error) {
	var requests []HoldRequest
	var holds []uuid.UUID
	for _, i := range todo {
		if one := t.tasks[i]; one.kind == create {
			requests = append(requests, one.HoldRequest)
		} else {
			holds = append(holds, one.hold)
		}
	}
	var b pgx.Batch
	campaigns := []uuid.UUID{t.tasks[0].Job.CampaignID}
	campaign.QueueLock(&b, campaigns, postgres.WaitForLocks, func(uuid.UUID) {})
	return t.service.readSnapshot(ctx, tx, &b, campaigns, requests, holds)
}

// names returns the campaign and the users of tasks, for failpoints.
func (t *transaction) names(todo []int) []string {
	names := []string{t.tasks[0].Job.CampaignID.String()}
	for _, i := range todo {
		names = append(names, t.tasks[i].Job.UserID)
	}
	return names
}

// effects is what a transaction writes, and what the process caches after its commit.
type effects struct {
	over     []Over  // holds that it ends
	extended []*Hold // each once
	released []*Hold
	made     []newHold
	changes  campaign.Changes
	taken    map[PositionID]taking // positions that are taken
	extends  int                   // extensions: a hold may have several
}

func newEffects(f *snapshot) *effects {
	return &effects{over: f.over, changes: make(campaign.Changes), taken: make(map[PositionID]taking)}
}

// end ends the holds that are over and those that are released, and extends others.
func (e *effects) end(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	if len(e.over) > 0 {
		QueueExpire(&b, e.over)
		for _, h := range e.over {
			e.changes.Add(h.CampaignID, campaign.Counts{Reserved: -h.Size})
		}
	}
	if len(e.extended) > 0 {
		queueExtend(&b, e.extended)
		for _, h := range e.extended {
			e.changes.Add(h.CampaignID, campaign.Counts{})
		}
	}
	if len(e.released) > 0 {
		QueueRelease(&b, e.released)
		for _, h := range e.released {
			e.changes.Add(h.CampaignID, campaign.Counts{Reserved: -len(h.Positions)})
		}
	}
	return fault.At(postgres.Send(ctx, tx, &b), "inventory.effects.end")
}

func (e *effects) hold(made newHold, ttl time.Duration) {
	e.made = append(e.made, made)
	e.changes.Add(made.CampaignID, campaign.Counts{Reserved: len(made.Picked)})
	for _, p := range made.Picked {
		e.taken[p.PositionID] = taking{remaining: ttl, userID: made.UserID}
	}
}

// write writes the new holds and the counters, in one round trip.
func (e *effects) write(ctx context.Context, tx pgx.Tx, quota HoldQuota) error {
	var b pgx.Batch
	e.changes.Queue(&b)
	if len(e.made) > 0 {
		if err := queueHold(&b, e.made, quota); err != nil {
			return err
		}
	}
	return fault.At(postgres.Send(ctx, tx, &b), "inventory.effects.write")
}

// cache caches, after the commit, which positions are taken and which are free
// again, and counts holds. began is before the transaction read anything.
func (s *Holds) cache(e *effects, began time.Time) {
	for _, h := range e.released {
		for _, p := range h.Positions {
			s.taken.remove(PositionID{CampaignID: h.CampaignID, Position: p.Position})
		}
	}
	for at, t := range e.taken {
		s.taken.add(at, began, t)
	}
	s.metrics.Count(holdsMade, len(e.made))
	s.metrics.Count(HoldsReclaimed, len(e.over))
	s.metrics.Count(holdsExtended, e.extends)
	s.metrics.Count(HoldsReleased, len(e.released))
}
