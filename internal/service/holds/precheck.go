package holds

import (
	"context"
	"maps"
	"slices"

	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// precheck is what is known of a request before it waits for any lock.
type precheck struct {
	retry   bool // earlier is the job of its key
	earlier job.Accepted
	refusal error
	now     map[inventory.PositionID]*inventory.Found // by lookAgain; shared
}

// findRetries finds the requests whose idempotency key has a job already.
func (s *Service) findRetries(ctx context.Context, requests []Request) ([]precheck, error) {
	earlier, known, err := job.OfKeys(ctx, s.db, jobsOf(requests))
	if err != nil {
		return nil, err
	}
	found := make([]precheck, len(requests))
	for i := range requests {
		found[i] = precheck{retry: known[i], earlier: earlier[i]}
	}
	return found, nil
}

// lookAgain finds retries of requests for positions that are known to be taken, and reads how
// these positions are now: another process may have freed them.
func (s *Service) lookAgain(ctx context.Context, requests []Request) ([]precheck, error) {
	began := s.taken.now()
	found, err := s.findRetries(ctx, requests)
	if err != nil {
		return nil, err
	}
	now := make(map[inventory.PositionID]*inventory.Found)
	for i, r := range requests {
		found[i].now = now
		for _, p := range r.Positions {
			now[inventory.PositionID{CampaignID: r.Job.CampaignID, Position: p}] = nil
		}
	}
	read, err := inventory.Find(ctx, s.db, slices.Collect(maps.Keys(now)))
	for _, f := range read {
		now[f.PositionID] = &f
		s.taken.see(&f, began)
	}
	return found, err
}

// precheck finds retries and refuses users over a limit. It looks up the keys last:
// when the hold of the same key already counts against the limit, the request is
// then known to be a retry.
func (s *Service) precheck(ctx context.Context, requests []Request) ([]precheck, error) {
	f, err := s.readFacts(ctx, requests)
	if err != nil {
		return nil, err
	}
	found, err := s.findRetries(ctx, requests)
	if err != nil {
		return nil, err
	}
	for i, r := range requests {
		// The transaction refuses impossible selections and a sale that is not open: its
		// refusals are recorded.
		if !found[i].retry && f.checkSale(r) == nil {
			found[i].refusal = f.checkUsage(r, s.settings)
		}
	}
	return found, nil
}

func jobsOf(requests []Request) []job.Request {
	jobs := make([]job.Request, len(requests))
	for i, r := range requests {
		jobs[i] = r.Job
	}
	return jobs
}
