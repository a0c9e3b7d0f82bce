package holds

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
	"triprize/internal/store/board"
	"triprize/internal/store/campaign"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
)

// pick takes what an ask wants off the shelf, all or nothing.
func (b *crowd) pick(a Ask) ([]*board.Free, error) {
	var picked []*board.Free
	var gone []fault.Field
	for i, p := range a.Positions {
		if f := b.shelf.At(board.Chosen{CampaignID: a.Job.CampaignID, Position: p}); f != nil {
			picked = append(picked, f)
		} else {
			gone = append(gone, takenField(i, p))
		}
	}
	if len(gone) > 0 {
		return nil, fault.Taken(gone...)
	}
	if a.Quantity == 0 {
		return picked, nil
	}
	cooling := b.scene.standings[asker{a.Job.CampaignID, a.Job.UserID}].cooling
	picked = b.shelf.First(a.Job.CampaignID, a.Layer, a.Quantity, func(f *board.Free) bool { return cooling[f.Position] })
	if picked == nil {
		return nil, b.whyEmpty(a)
	}
	return picked, nil
}

// whyEmpty tells "everything is sold", which is final, from "nothing is free at the moment".
func (b *crowd) whyEmpty(a Ask) error {
	if a.Layer > 0 && b.sold[pool(a.Job.CampaignID, a.Layer)] == triangle.InLayer(a.Layer) {
		return fault.New(fault.SoldOut, "all %d positions of layer %d are sold", triangle.InLayer(a.Layer), a.Layer)
	}
	return fault.New(fault.NoneAvailable, "asked for %d, and fewer are free at the moment; held and reserved positions may become free again", a.Quantity)
}

// keep records a hold; write will write it. From now on its positions are gone,
// and its user has them.
func (b *crowd) keep(a Ask, picked []*board.Free) hold.Hold {
	made := hold.Hold{ID: job.NewID(), CampaignID: a.Job.CampaignID, UserID: a.Job.UserID, State: hold.Active,
		CreatedAt: b.scene.now, ExpiresAt: b.scene.now.Add(a.TTL)}
	board.InOrder(picked)
	b.shelf.Take(picked)
	for _, f := range picked {
		at := board.Chosen{CampaignID: f.CampaignID, Position: f.Position}
		b.gone[at] = a.TTL
		b.kept = append(b.kept, board.Keeping{Free: *f, UserID: made.UserID, HoldID: made.ID, ExpiresAt: made.ExpiresAt})
		made.Positions = append(made.Positions, hold.Position{Position: f.Position, Price: f.Price})
	}
	b.made = append(b.made, made)
	has := b.scene.standings[asker{a.Job.CampaignID, a.Job.UserID}]
	has.owned += len(picked)
	has.holds++
	has.held += len(picked)
	b.scene.held[a.Job.CampaignID] += len(picked)
	return made
}

// write writes what was decided, in one round trip.
func (b *crowd) write(ctx context.Context, tx pgx.Tx, changes map[uuid.UUID]*campaign.Change) error {
	var p pgx.Batch
	if err := queueChanges(&p, changes); err != nil {
		return err
	}
	if len(b.made) > 0 {
		board.QueueHold(&p, b.kept).Exec(exactly(len(b.kept), "positions"))
		if err := hold.QueueInsert(&p, b.made); err != nil {
			return err
		}
	}
	if p.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func queueChanges(p *pgx.Batch, changes map[uuid.UUID]*campaign.Change) error {
	if len(changes) == 0 {
		return nil
	}
	list := make([]campaign.Change, 0, len(changes))
	for _, id := range slices.SortedFunc(maps.Keys(changes), func(x, y uuid.UUID) int { return slices.Compare(x[:], y[:]) }) {
		list = append(list, *changes[id])
	}
	campaign.QueueCount(p, list).Exec(exactly(len(list), "campaigns"))
	return nil
}

// remember notes, after the commit, what is taken, and counts.
func (b *crowd) remember() {
	for at, remaining := range b.gone {
		b.desk.taken.note(place{at.CampaignID, at.Position}, b.began, remaining)
	}
	b.desk.metrics.Count(hold.EventMade, len(b.made))
	b.desk.metrics.Count(hold.EventReclaimed, len(b.scene.due))
}
