package holds

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// Extend moves the deadline of an active hold by r.TTL, once per idempotency key: it adds to
// what is left. r has the campaign of the hold. The settings limit how often a hold can be
// extended. It is allowed while the sale is paused or over.
//
// Never more is left than holds.max_ttl, no hold outlasts the end of a sale that is drawn
// then, nor the time that its user may keep its positions in all its holds of them. A hold
// gets what these bounds leave, and is never shortened; where they leave nothing, the
// extension is refused and does not count.
func (s *Service) Extend(ctx context.Context, r Request, id uuid.UUID) (job.Accepted, error) {
	done, err := s.campaigns.Do(ctx, r.Job.CampaignID, task{Request: r, kind: extend, hold: id})
	if err == nil {
		err = done.Err
	}
	return done.Accepted, err
}

func (s *Service) extend(f *facts, out *effects, r task) job.Answer {
	h, err := f.active(r)
	if err != nil {
		return job.Answer{Refusal: err}
	}
	if most := s.settings.MaxExtensions; h.Extensions >= most {
		return job.Answer{Refusal: fault.New(fault.HoldLimitExceeded, "a hold can be extended %d times, and this one was", most)}
	}
	deadline, bound := s.extended(f, h, r.TTL)
	if !deadline.After(h.ExpiresAt) {
		return job.Answer{Refusal: fault.New(fault.HoldLimitExceeded, "%s; this hold lasts until %s, and cannot last longer now", bound, h.ExpiresAt.UTC().Format(millis))}
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
func (s *Service) extended(f *facts, h *inventory.Hold, ttl time.Duration) (deadline time.Time, bound string) {
	deadline = h.ExpiresAt.Add(ttl)
	within := func(end time.Time, why string) {
		if deadline.After(end) {
			deadline, bound = end, why
		}
	}
	within(f.now.Add(s.settings.MaxTTL), fmt.Sprintf("no hold has more than %s left", s.settings.MaxTTL))
	if end := f.campaigns[h.CampaignID].DrawsAt; end != nil {
		within(*end, "what is sold by "+end.UTC().Format(millis)+" is drawn: no hold outlasts that")
	}
	within(h.EndsBy, "this user has held these positions before: this hold can last until "+h.EndsBy.UTC().Format(millis))
	return deadline, bound
}

// Release ends an active hold of a campaign and frees its positions at once. When the
// hold was released before, nothing changes and released is false.
func (s *Service) Release(ctx context.Context, campaignID, id uuid.UUID) (released bool, err error) {
	done, err := s.campaigns.Do(ctx, campaignID, task{Request: Request{Job: job.Request{CampaignID: campaignID}}, kind: release, hold: id})
	if err == nil {
		err = done.Err
	}
	return done.released, err
}

func (s *Service) release(f *facts, out *effects, r task) (released bool, err error) {
	h, err := f.active(r)
	if h != nil && h.State == inventory.HoldReleased {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h.State = inventory.HoldReleased
	out.released = append(out.released, h)
	f.release(h)
	return true, nil
}

// active returns a hold that is to be changed. When the hold is not active it is
// returned with an Error that says how it ended.
func (f *facts) active(r task) (*inventory.Hold, error) {
	h := f.holds[r.hold]
	if h == nil || h.CampaignID != r.Job.CampaignID {
		return nil, fault.New(fault.NotFound, "there is no hold %s", r.hold)
	}
	return h, h.CheckActive()
}
