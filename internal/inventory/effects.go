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
	"triprize/internal/platform/postgres"
)

// Extend moves the deadline of an active hold by r.TTL, once per idempotency key: it adds to
// what is left. r has the campaign of the hold. The settings limit how often a hold can be
// extended. It is allowed while the sale is paused or over.
//
// Never more is left than holds.max_ttl, no hold outlasts the end of a sale that is drawn
// then, nor the time that its user may keep its positions in all its holds of them. A hold
// gets what these bounds leave, and is never shortened; where they leave nothing, the
// extension is refused and does not count.
func (s *Holds) Extend(ctx context.Context, r HoldRequest, id uuid.UUID) (job.Accepted, error) {
	done, err := s.campaigns.Do(ctx, r.Job.CampaignID, task{HoldRequest: r, kind: extend, hold: id})
	if err == nil {
		err = done.Err
	}
	return done.Accepted, err
}

func (s *Holds) extend(f *facts, out *effects, r task) job.Answer {
	h, err := f.active(r)
	if err != nil {
		return job.Answer{Refusal: err}
	}
	if most := s.settings.MaxExtensions; h.Extensions >= most {
		return job.Answer{Refusal: fault.New(fault.HoldLimitExceeded, "a hold can be extended %d times, and this one was", most)}
	}
	deadline, bound := s.extended(f, h, r.TTL)
	if !deadline.After(h.ExpiresAt) {
		return job.Answer{Refusal: fault.New(fault.HoldLimitExceeded, "%s; this hold lasts until %s, and cannot last longer now", bound, h.ExpiresAt.UTC().Format(millisOf))}
	}
	h.ExpiresAt = deadline
	h.Extensions++
	out.extends++
	if !slices.Contains(out.extended, h) {
		out.extended = append(out.extended, h)
	}
	return job.Answer{Body: s.render(*h, r.Viewer)}
}

// extended returns until when a hold lasts when ttl is added, within the bounds, and the
// bound that leaves least.
func (s *Holds) extended(f *facts, h *Hold, ttl time.Duration) (deadline time.Time, bound string) {
	deadline = h.ExpiresAt.Add(ttl)
	within := func(end time.Time, why string) {
		if deadline.After(end) {
			deadline, bound = end, why
		}
	}
	within(f.now.Add(s.settings.MaxTTL), fmt.Sprintf("no hold has more than %s left", s.settings.MaxTTL))
	if end := f.campaigns[h.CampaignID].DrawsAt; end != nil {
		within(*end, "what is sold by "+end.UTC().Format(millisOf)+" is drawn: no hold outlasts that")
	}
	within(h.EndsBy, "this user has held these positions before: this hold can last until "+h.EndsBy.UTC().Format(millisOf))
	return deadline, bound
}

// Release ends an active hold of a campaign and frees its positions at once. When the
// hold was released before, nothing changes and released is false.
func (s *Holds) Release(ctx context.Context, campaignID, id uuid.UUID) (released bool, err error) {
	done, err := s.campaigns.Do(ctx, campaignID, task{HoldRequest: HoldRequest{Job: job.Request{CampaignID: campaignID}}, kind: release, hold: id})
	if err == nil {
		err = done.Err
	}
	return done.released, err
}

func (s *Holds) release(f *facts, out *effects, r task) (released bool, err error) {
	h, err := f.active(r)
	if h != nil && h.State == HoldReleased {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h.State = HoldReleased
	out.released = append(out.released, h)
	f.release(h)
	return true, nil
}

// active returns a hold that is to be changed. When the hold is not active it is
// returned with an Error that says how it ended.
func (f *facts) active(r task) (*Hold, error) {
	h := f.holds[r.hold]
	if h == nil || h.CampaignID != r.Job.CampaignID {
		return nil, fault.New(fault.NotFound, "there is no hold %s", r.hold)
	}
	return h, h.CheckActive()
}

// effects is what a transaction writes, and what the process caches after its commit.
type effects struct {
	over     []Over  // holds that it ends
	extended []*Hold // each once
	released []*Hold
	made     []NewHold
	changes  campaign.Changes
	taken    map[PositionID]taking // positions that are taken
	extends  int                   // extensions: a hold may have several
}

func newEffects(f *facts) *effects {
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
		QueueExtend(&b, e.extended)
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
	return fault.At(postgres.Send(ctx, tx, &b), "end")
}

func (e *effects) hold(made NewHold, ttl time.Duration) {
	e.made = append(e.made, made)
	e.changes.Add(made.CampaignID, campaign.Counts{Reserved: len(made.Picked)})
	for _, p := range made.Picked {
		e.taken[p.PositionID] = taking{remaining: ttl, userID: made.UserID}
	}
}

// noteTaken notes which of the positions that requests named are taken.
func (e *effects) noteTaken(stock *Stock) {
	for at, p := range stock.Named() {
		if t, ok := takingOf(p); ok {
			e.taken[at] = t
		}
	}
}

// write writes the new holds and the counters, in one round trip.
func (e *effects) write(ctx context.Context, tx pgx.Tx, turns Turns) error {
	var b pgx.Batch
	e.changes.Queue(&b)
	if len(e.made) > 0 {
		if err := QueueHold(&b, e.made, turns); err != nil {
			return err
		}
	}
	return fault.At(postgres.Send(ctx, tx, &b), "write")
}

// remember caches, after the commit, which positions are taken and which are free
// again, and counts holds. began is before the transaction read anything.
func (s *Holds) remember(e *effects, began time.Time) {
	for _, h := range e.released {
		for _, p := range h.Positions {
			s.taken.remove(PositionID{CampaignID: h.CampaignID, Position: p.Position})
		}
	}
	for at, t := range e.taken {
		s.taken.add(at, began, t)
	}
	s.metrics.Count(HoldsMade, len(e.made))
	s.metrics.Count(HoldsReclaimed, len(e.over))
	s.metrics.Count(HoldsExtended, e.extends)
	s.metrics.Count(HoldsReleased, len(e.released))
}

// Expire ends at most limit holds of a campaign that are over, and returns how many
// holds have ended and how many positions are free again.
func ExpireHolds(ctx context.Context, db postgres.Beginner, campaignID uuid.UUID, limit int) (holds, positions int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		holds, positions = 0, 0
		if err := campaign.Lock(ctx, tx, campaignID); err != nil {
			return err
		}
		e := effects{changes: make(campaign.Changes)}
		var find pgx.Batch
		QueueFindOver(&find, []uuid.UUID{campaignID}, &e.over)
		if err := tx.SendBatch(ctx, &find).Close(); err != nil {
			return err
		}
		e.over = e.over[:min(len(e.over), limit)]
		if err := e.end(ctx, tx); err != nil {
			return err
		}
		holds, positions = len(e.over), -e.changes[campaignID].Reserved
		return e.write(ctx, tx, Turns{})
	})
	if err != nil {
		return 0, 0, fmt.Errorf("holds.Expire(%s): %w", campaignID, err)
	}
	return holds, positions, nil
}
