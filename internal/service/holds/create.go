package holds

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"triprize/internal/domain/triangle"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/failpoint"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// createAll makes holds, in one transaction for each campaign. So a campaign that
// stays locked does not delay the others, and only its own requests fail.
func (s *Service) createAll(ctx context.Context, requests []Request) ([]job.Done, error) {
	groups := make(map[uuid.UUID][]int)
	for i, r := range requests {
		groups[r.Job.CampaignID] = append(groups[r.Job.CampaignID], i)
	}
	if len(groups) == 1 {
		return s.create(ctx, requests)
	}
	done := make([]job.Done, len(requests))
	var work errgroup.Group
	work.SetLimit(lanes)
	for _, group := range groups {
		work.Go(func() error {
			mine := make([]Request, len(group))
			for at, i := range group {
				mine[at] = requests[i]
			}
			made, err := s.create(ctx, mine)
			for at, i := range group {
				if done[i].Err = err; err == nil {
					done[i] = made[at]
				}
			}
			return nil
		})
	}
	_ = work.Wait() // every request has its own error
	return done, nil
}

// create makes holds in one campaign, in one transaction.
func (s *Service) create(ctx context.Context, requests []Request) ([]job.Done, error) {
	began := s.taken.now() // before anything is read
	var out *effects
	done, err := job.OnceEach(ctx, s.db, jobsOf(requests), func(tx pgx.Tx, fresh []int) (answers []job.Answer, err error) {
		mine := make([]Request, len(fresh))
		for at, i := range fresh {
			mine[at] = requests[i]
		}
		answers, out, err = s.decide(ctx, tx, mine)
		failpoint.Hit("holds.commit", func() []string { return users(mine) })
		return answers, err
	})
	if err != nil {
		return nil, fmt.Errorf("holds.create: %w", err)
	}
	failpoint.Hit("holds.committed", nil)
	if out != nil {
		s.remember(out, began)
	}
	return done, nil
}

func users(requests []Request) []string {
	users := make([]string, len(requests))
	for i, r := range requests {
		users[i] = r.Job.UserID
	}
	return users
}

// effects is what a transaction writes, and what the process caches after its commit.
type effects struct {
	made    []inventory.NewHold
	over    []inventory.Over // holds that it ends
	changes campaign.Changes
	taken   map[inventory.PositionID]time.Duration // positions that are taken, and for how long at least
}

// decide is the transaction: it locks the campaign, ends the holds that are over,
// decides the requests in order of arrival, and writes.
func (s *Service) decide(ctx context.Context, tx pgx.Tx, requests []Request) ([]job.Answer, *effects, error) {
	f, err := lockFacts(ctx, tx, requests, s.settings)
	if err != nil {
		return nil, nil, err
	}
	out := &effects{over: f.over, changes: make(campaign.Changes), taken: make(map[inventory.PositionID]time.Duration)}
	if err := out.expire(ctx, tx); err != nil {
		return nil, nil, err
	}
	stock, err := findStock(ctx, tx, f, requests)
	if err != nil {
		return nil, nil, err
	}
	out.noteTaken(stock)
	answers := make([]job.Answer, len(requests))
	for i, r := range requests {
		made, err := s.decideOne(f, stock, r)
		if err != nil {
			answers[i].Refusal = err
			continue
		}
		out.hold(made, r.TTL)
		answers[i].Body = s.render(made.Hold)
	}
	return answers, out, out.write(ctx, tx)
}

// expire ends the holds that are over and frees their positions.
func (e *effects) expire(ctx context.Context, tx pgx.Tx) error {
	if len(e.over) == 0 {
		return nil
	}
	var b pgx.Batch
	inventory.QueueExpire(&b, e.over)
	for _, h := range e.over {
		e.changes.Add(h.CampaignID, campaign.Change{Reserved: -h.Size})
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("expire: %w", err)
	}
	return nil
}

// findStock finds enough positions for requests, also when some must be avoided.
func findStock(ctx context.Context, tx pgx.Tx, f *facts, requests []Request) (*inventory.Stock, error) {
	counts := make(map[uuid.UUID]inventory.Counts)
	wanted := make([]inventory.Request, len(requests))
	for i, r := range requests {
		if c := f.campaigns[r.Job.CampaignID]; c != nil {
			counts[c.ID] = inventory.Counts{Total: c.Counts.Total, Sold: c.Counts.Sold}
		}
		wanted[i] = inventory.Request{CampaignID: r.Job.CampaignID, Selection: r.Selection}
		if r.Quantity > 0 {
			wanted[i].Avoid = len(f.usages[r.user()].cooling)
		}
	}
	return inventory.FindStock(ctx, tx, counts, wanted)
}

// decideOne makes a hold, or returns why the request is refused.
func (s *Service) decideOne(f *facts, stock *inventory.Stock, r Request) (inventory.NewHold, error) {
	if err := f.check(r, s.settings); err != nil {
		return inventory.NewHold{}, err
	}
	cooling := f.usages[r.user()].cooling
	picked, err := stock.Select(r.Job.CampaignID, r.Selection, "", func(p triangle.Position) bool { return cooling[p] })
	if err != nil {
		return inventory.NewHold{}, err
	}
	stock.Hold(picked)
	f.hold(r, len(picked))
	made := inventory.NewHold{Picked: picked, Hold: inventory.Hold{ID: uuidv7.New(), CampaignID: r.Job.CampaignID, UserID: r.Job.UserID,
		State: inventory.HoldActive, CreatedAt: f.now, ExpiresAt: f.now.Add(r.TTL)}}
	for _, p := range picked {
		made.Positions = append(made.Positions, inventory.HoldPosition{Position: p.Position, Price: p.Price})
	}
	return made, nil
}

func (e *effects) hold(made inventory.NewHold, ttl time.Duration) {
	e.made = append(e.made, made)
	e.changes.Add(made.CampaignID, campaign.Change{Reserved: len(made.Picked)})
	for _, p := range made.Picked {
		e.taken[p.PositionID] = ttl
	}
}

// noteTaken notes which of the positions that requests named are taken.
func (e *effects) noteTaken(stock *inventory.Stock) {
	for at, p := range stock.Named() {
		switch p.State {
		case inventory.Available:
		case inventory.Sold:
			e.taken[at] = takenFor
		default:
			e.taken[at] = p.Remaining // not positive when its deadline passed during this transaction
		}
	}
}

// write writes the new holds and the counters, in one round trip.
func (e *effects) write(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	e.changes.Queue(&b)
	if len(e.made) > 0 {
		if err := inventory.QueueHold(&b, e.made); err != nil {
			return err
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// remember caches, after the commit, which positions are taken, and counts holds.
// began is before the transaction read anything.
func (s *Service) remember(e *effects, began time.Time) {
	for at, remaining := range e.taken {
		s.taken.add(at, began, remaining)
	}
	s.metrics.Count(inventory.HoldsMade, len(e.made))
	s.metrics.Count(inventory.HoldsReclaimed, len(e.over))
}
