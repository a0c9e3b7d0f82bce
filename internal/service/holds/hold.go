package holds

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"triprize/internal/platform/failpoint"
	"triprize/internal/store/board"
	"triprize/internal/store/campaign"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
)

// glance is what a look without locks found.
type glance struct {
	known   bool // there is a job with this key
	earlier job.Accepted
	refusal error
}

// lookUp answers retries.
func (d *Desk) lookUp(ctx context.Context, asks []Ask) ([]glance, error) {
	requests := make([]job.Request, len(asks))
	for i, a := range asks {
		requests[i] = a.Job
	}
	earlier, known, err := job.OfKeys(ctx, d.db, requests)
	if err != nil {
		return nil, err
	}
	seen := make([]glance, len(asks))
	for i := range asks {
		seen[i] = glance{known: known[i], earlier: earlier[i]}
	}
	return seen, nil
}

// look answers retries, and refuses those who hold too much. The keys are looked
// up last: whose hold counts against it by then is found to be a retry.
func (d *Desk) look(ctx context.Context, asks []Ask) ([]glance, error) {
	s, err := survey(ctx, d.db, asks, d.settings, false)
	if err != nil {
		return nil, err
	}
	seen, err := d.lookUp(ctx, asks)
	if err != nil {
		return nil, err
	}
	for i, a := range asks {
		// What can never be, and a sale that is not open, is for the transaction to
		// refuse: that is recorded.
		if c := s.campaigns[a.Job.CampaignID]; !seen[i].known && onSale(c, a) == nil {
			seen[i].refusal = d.withinLimits(s, c, a)
		}
	}
	return seen, nil
}

// flush makes holds, in one transaction for each campaign: a campaign that
// somebody keeps locked holds up no other, and its asks fail alone.
func (d *Desk) flush(ctx context.Context, asks []Ask) ([]job.Done, error) {
	groups := make(map[uuid.UUID][]int)
	for i, a := range asks {
		groups[a.Job.CampaignID] = append(groups[a.Job.CampaignID], i)
	}
	if len(groups) == 1 {
		return d.make(ctx, asks)
	}
	done := make([]job.Done, len(asks))
	var work errgroup.Group
	work.SetLimit(lanes)
	for _, group := range groups {
		work.Go(func() error {
			mine := make([]Ask, len(group))
			for at, i := range group {
				mine[at] = asks[i]
			}
			made, err := d.make(ctx, mine)
			for at, i := range group {
				if done[i].Err = err; err == nil {
					done[i] = made[at]
				}
			}
			return nil
		})
	}
	_ = work.Wait() // every ask has its own error
	return done, nil
}

// make makes holds in one campaign, in one transaction.
func (d *Desk) make(ctx context.Context, asks []Ask) ([]job.Done, error) {
	requests := make([]job.Request, len(asks))
	for i, a := range asks {
		requests[i] = a.Job
	}
	var b *crowd
	done, err := job.OnceEach(ctx, d.db, requests, func(tx pgx.Tx, fresh []int) ([]job.Answer, error) {
		mine := make([]Ask, len(fresh))
		for at, i := range fresh {
			mine[at] = asks[i]
		}
		b = &crowd{desk: d, asks: mine, answers: make([]job.Answer, len(mine)), began: time.Now()}
		err := b.decide(ctx, tx)
		failpoint.Hit("holding.commit", b.users)
		return b.answers, err
	})
	if err != nil {
		return nil, fmt.Errorf("holding.make: %w", err)
	}
	failpoint.Hit("holding.committed", nil)
	if b != nil {
		b.remember()
	}
	return done, nil
}

// crowd is the state of one transaction.
type crowd struct {
	desk    *Desk
	asks    []Ask
	answers []job.Answer
	began   time.Time // before anything was read
	scene   *scene

	shelf *board.Shelf
	gone  map[board.Chosen]time.Duration // found taken, and for how long
	sold  map[place]int

	made []hold.Hold
	kept []board.Keeping
}

func (b *crowd) users() []string {
	var users []string
	for _, a := range b.asks {
		users = append(users, a.Job.UserID)
	}
	return users
}

// pool names a layer of a campaign, or with layer 0 all of it.
func pool(campaignID uuid.UUID, layer int) place {
	p := place{campaignID: campaignID}
	p.Layer = layer
	return p
}

func (b *crowd) decide(ctx context.Context, tx pgx.Tx) (err error) {
	if b.scene, err = survey(ctx, tx, b.asks, b.desk.settings, true); err != nil {
		return err
	}
	changes := make(map[uuid.UUID]*campaign.Change)
	if err := endDue(ctx, tx, b.scene.due, changes); err != nil {
		return err
	}
	if err := b.find(ctx, tx); err != nil {
		return err
	}
	for i, a := range b.asks {
		if err := b.desk.admit(b.scene, a); err != nil {
			b.answers[i].Refusal = err
			continue
		}
		picked, err := b.pick(a)
		if err != nil {
			b.answers[i].Refusal = err
			continue
		}
		made := b.keep(a, picked)
		b.answers[i] = job.Answer{Status: http.StatusCreated, Body: b.desk.answer(made)}
		if changes[a.Job.CampaignID] == nil {
			changes[a.Job.CampaignID] = &campaign.Change{ID: a.Job.CampaignID}
		}
		changes[a.Job.CampaignID].Reserved += len(picked)
	}
	return b.write(ctx, tx, changes)
}

// endDue ends holds that are over and frees what they kept.
func endDue(ctx context.Context, tx pgx.Tx, due []hold.Due, changes map[uuid.UUID]*campaign.Change) error {
	if len(due) == 0 {
		return nil
	}
	ids, campaigns, freed := make([]uuid.UUID, len(due)), make([]uuid.UUID, len(due)), 0
	for i, d := range due {
		ids[i], campaigns[i] = d.ID, d.CampaignID
		freed += d.Size
		if changes[d.CampaignID] == nil {
			changes[d.CampaignID] = &campaign.Change{ID: d.CampaignID}
		}
		changes[d.CampaignID].Reserved -= d.Size
	}
	var p pgx.Batch
	hold.QueueExpire(&p, ids).Exec(exactly(len(ids), "holds"))
	board.QueueFreeHeld(&p, campaigns, ids).Exec(exactly(freed, "held positions"))
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return fmt.Errorf("endDue: %w", err)
	}
	return nil
}

// find reads the positions that asks name, and as many free ones as those who
// leave the choice to us could need beside all others.
func (b *crowd) find(ctx context.Context, tx pgx.Tx) error {
	b.gone, b.sold = make(map[board.Chosen]time.Duration), make(map[place]int)
	var chosen []board.Chosen
	total, cooling := make(map[uuid.UUID]int), make(map[uuid.UUID]int)
	for _, a := range b.asks {
		total[a.Job.CampaignID] += a.size()
		for _, p := range a.Positions {
			chosen = append(chosen, board.Chosen{CampaignID: a.Job.CampaignID, Position: p})
		}
		if a.Quantity > 0 {
			cooling[a.Job.CampaignID] += len(b.scene.standings[asker{a.Job.CampaignID, a.Job.UserID}].cooling)
		}
	}
	slices.SortFunc(chosen, byPlace)
	chosen = slices.Compact(chosen)
	var needs []board.Need
	asked := make(map[place]bool)
	for _, a := range b.asks {
		if at := pool(a.Job.CampaignID, a.Layer); a.Quantity > 0 && !asked[at] {
			asked[at] = true
			needs = append(needs, board.Need{CampaignID: a.Job.CampaignID, Layer: a.Layer, Count: total[a.Job.CampaignID] + cooling[a.Job.CampaignID]})
		}
	}
	free, err := board.FindFree(ctx, tx, needs)
	if err != nil {
		return err
	}
	named, err := board.Find(ctx, tx, chosen)
	if err != nil {
		return err
	}
	b.shelf = board.NewShelf(free, named)
	for _, f := range named {
		at := board.Chosen{CampaignID: f.CampaignID, Position: f.Position}
		switch f.State {
		case board.Available:
		case board.Sold:
			b.gone[at] = remembered
		default:
			b.gone[at] = f.Remaining // none: its time was over between what is due and this look
		}
	}
	return b.countShort(ctx, tx, b.shelf.Short(needs))
}

func byPlace(x, y board.Chosen) int {
	if c := slices.Compare(x.CampaignID[:], y.CampaignID[:]); c != 0 {
		return c
	}
	switch {
	case x.Before(y.Position):
		return -1
	case y.Before(x.Position):
		return 1
	}
	return 0
}

// countShort counts what is sold in layers that may not have enough, so that a
// refusal can say whether it is final.
func (b *crowd) countShort(ctx context.Context, tx pgx.Tx, short []board.Need) error {
	if len(short) == 0 {
		return nil
	}
	counts, err := board.CountSold(ctx, tx, short)
	for i, n := range counts {
		b.sold[pool(short[i].CampaignID, short[i].Layer)] = n
	}
	return err
}

// exactly returns a check that a statement touches n rows.
func exactly(n int, what string) func(tag pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("%w: %d of %d %s", ErrMoved, tag.RowsAffected(), n, what)
		}
		return nil
	}
}
