package inventory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
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
		return nil, fmt.Errorf("holds.flush: %w", err)
	}
	failpoint.Hit("holds.committed", nil)
	if t.effects != nil {
		s.remember(t.effects, began)
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
			mine := make([]int, len(fresh))
			for at, i := range fresh {
				mine[at] = keyed[i]
			}
			return t.decide(ctx, tx, mine, unkeyed)
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
	mine := append(slices.Clone(keyed), unkeyed...)
	slices.Sort(mine) // the order of arrival
	f, err := t.lockFacts(ctx, tx, mine)
	if err != nil {
		return nil, err
	}
	out := newEffects(f)
	answers := make([]job.Answer, len(t.tasks))
	for _, i := range mine {
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
	if err := t.create(ctx, tx, f, out, mine, answers); err != nil {
		return nil, err
	}
	if err := out.write(ctx, tx, f.turns); err != nil {
		return nil, err
	}
	t.effects = out
	failpoint.Hit("holds.commit", func() []string { return t.names(mine) })
	of := make([]job.Answer, len(keyed))
	for at, i := range keyed {
		of[at] = answers[i]
	}
	return of, nil
}

// lockFacts locks the campaign and reads the facts about tasks.
func (t *transaction) lockFacts(ctx context.Context, tx pgx.Tx, mine []int) (*facts, error) {
	var requests []HoldRequest
	var holds []uuid.UUID
	for _, i := range mine {
		if one := t.tasks[i]; one.kind == create {
			requests = append(requests, one.HoldRequest)
		} else {
			holds = append(holds, one.hold)
		}
	}
	var b pgx.Batch
	campaigns := []uuid.UUID{t.tasks[0].Job.CampaignID}
	campaign.QueueLock(&b, campaigns, postgres.WaitForLocks, func(uuid.UUID) {})
	return t.service.readFacts(ctx, tx, &b, campaigns, requests, holds)
}

// create makes the holds that tasks ask for. Users who give positions back in this
// transaction choose last: they have no head start for what is free now.
func (t *transaction) create(ctx context.Context, tx pgx.Tx, f *facts, out *effects, mine []int, answers []job.Answer) error {
	var of []int
	for _, i := range mine {
		if t.tasks[i].kind == create {
			of = append(of, i)
		}
	}
	if len(of) == 0 {
		return nil
	}
	slices.SortStableFunc(of, func(i, j int) int { return f.lateness(t.tasks[i].HoldRequest) - f.lateness(t.tasks[j].HoldRequest) })
	requests := make([]HoldRequest, len(of))
	for at, i := range of {
		requests[at] = t.tasks[i].HoldRequest
	}
	stock, err := findStock(ctx, tx, f, requests)
	if err != nil {
		return err
	}
	out.noteTaken(stock)
	for at, r := range requests {
		made, err := t.service.decideOne(f, stock, r)
		if err != nil {
			answers[of[at]].Refusal = err
			continue
		}
		out.hold(made, made.ExpiresAt.Sub(made.CreatedAt))
		answers[of[at]].Body = t.service.render(made.Hold, r.Viewer)
	}
	return nil
}

func (f *facts) lateness(r HoldRequest) int {
	if f.usages[r.user()].late {
		return 1
	}
	return 0
}

// names returns the campaign and the users of tasks, for failpoints.
func (t *transaction) names(mine []int) []string {
	names := []string{t.tasks[0].Job.CampaignID.String()}
	for _, i := range mine {
		names = append(names, t.tasks[i].Job.UserID)
	}
	return names
}

// findStock finds enough positions for requests, also when some must be avoided.
func findStock(ctx context.Context, tx pgx.Tx, f *facts, requests []HoldRequest) (*Stock, error) {
	wanted := make([]Request, len(requests))
	for i, r := range requests {
		wanted[i] = Request{CampaignID: r.Job.CampaignID, Selection: r.Selection}
		if c := f.campaigns[r.Job.CampaignID]; c != nil {
			wanted[i].Shape, wanted[i].Gone = c.Shape, c.Counts.Sold+c.Counts.Blocked
		}
		if r.Quantity > 0 {
			wanted[i].Avoid = f.quota(r).Avoided()
		}
	}
	return FindStock(ctx, tx, wanted)
}

// decideOne makes a hold, or returns why the request is refused.
func (s *Holds) decideOne(f *facts, stock *Stock, r HoldRequest) (NewHold, error) {
	if err := f.check(r, s.settings); err != nil {
		return NewHold{}, err
	}
	picked, err := stock.Select(r.Job.CampaignID, r.Selection, "", f.quota(r).Avoid())
	if err != nil {
		return NewHold{}, stock.NameOwn(err, r.Job.CampaignID, r.Job.Client, r.Job.UserID, r.Selection)
	}
	f.hold(r, len(picked))
	made := NewHold{Picked: picked, Hold: Hold{ID: uuidv7.New(), CampaignID: r.Job.CampaignID, UserID: r.Job.UserID,
		Currency: f.campaigns[r.Job.CampaignID].Currency, Client: r.Job.Client, Metadata: r.Metadata, State: HoldActive, CreatedAt: f.now, ExpiresAt: f.now.Add(r.TTL), EndsBy: f.quota(r).EndsBy(f.now, picked)}}
	if end := f.campaigns[r.Job.CampaignID].DrawsAt; end != nil { // nothing is held when it is drawn
		made.ExpiresAt, made.EndsBy = earlier(made.ExpiresAt, *end), earlier(made.EndsBy, *end)
	}
	stock.Keep(picked, HeldBy(made.Client, made.UserID, made.ID))
	form := f.campaigns[r.Job.CampaignID].Shape
	for _, p := range picked {
		made.Positions = append(made.Positions, shape.Item{Place: form.Place(p.Position), Price: p.Price})
	}
	return made, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
