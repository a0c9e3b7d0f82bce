package holds

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// Extend moves the deadline of an active hold to ttl from now, if that is later,
// once per idempotency key. r has the campaign of the hold. The settings limit how
// often a hold can be extended. It is allowed while the sale is paused or over, but no hold
// outlasts the end of a sale that is drawn then.
func (s *Service) Extend(ctx context.Context, r job.Request, id uuid.UUID, ttl time.Duration) (job.Accepted, error) {
	done, err := s.campaigns.Do(ctx, r.CampaignID, task{Request: Request{Job: r, TTL: ttl}, kind: extend, hold: id})
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
	deadline := f.now.Add(r.TTL)
	if end := f.campaigns[h.CampaignID].DrawsAt; end != nil && deadline.After(*end) {
		if deadline = *end; !deadline.After(h.ExpiresAt) {
			return job.Answer{Refusal: fault.New(fault.HoldLimitExceeded, "what is sold by %s is drawn: no hold lasts longer, and this one lasts until then", end.UTC().Format(millis))}
		}
	}
	if deadline.After(h.ExpiresAt) {
		if h.EndsBy != nil && deadline.After(*h.EndsBy) {
			return job.Answer{Refusal: fault.New(fault.HoldLimitExceeded, "this user has held these positions before: this hold can last until %s", h.EndsBy.UTC().Format(millis))}
		}
		h.ExpiresAt = deadline
	}
	h.Extensions++
	out.extends++
	if !slices.Contains(out.extended, h) {
		out.extended = append(out.extended, h)
	}
	return job.Answer{Body: s.render(*h)}
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
