package holds

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/failpoint"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

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
	var requests []Request
	var holds []uuid.UUID
	for _, i := range mine {
		if one := t.tasks[i]; one.kind == create {
			requests = append(requests, one.Request)
		} else {
			holds = append(holds, one.hold)
		}
	}
	return t.service.lockFacts(ctx, tx, t.tasks[0].Job.CampaignID, requests, holds)
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
	slices.SortStableFunc(of, func(i, j int) int { return f.lateness(t.tasks[i].Request) - f.lateness(t.tasks[j].Request) })
	requests := make([]Request, len(of))
	for at, i := range of {
		requests[at] = t.tasks[i].Request
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

func (f *facts) lateness(r Request) int {
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
func findStock(ctx context.Context, tx pgx.Tx, f *facts, requests []Request) (*inventory.Stock, error) {
	counts := make(map[uuid.UUID]inventory.Counts)
	wanted := make([]inventory.Request, len(requests))
	for i, r := range requests {
		if c := f.campaigns[r.Job.CampaignID]; c != nil {
			counts[c.ID] = inventory.Counts{Shape: c.Shape, Sold: c.Counts.Sold, Blocked: c.Counts.Blocked}
		}
		wanted[i] = inventory.Request{CampaignID: r.Job.CampaignID, Selection: r.Selection}
		if r.Quantity > 0 {
			wanted[i].Avoid = f.avoided(r)
		}
	}
	return inventory.FindStock(ctx, tx, counts, wanted)
}
