package holds

import (
	"context"

	"triprize/internal/store/job"
)

// precheck is what is found of a request before any lock is taken for it.
type precheck struct {
	retry   bool // there is a job with its key
	earlier job.Accepted
	refusal error
}

// findRetries finds the requests that were made before.
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

// precheck finds retries, and refuses users who hold too much. The keys are looked
// up last: if it is the hold of the same key that counts against a user by then,
// the request is found to be a retry.
func (s *Service) precheck(ctx context.Context, requests []Request) ([]precheck, error) {
	f, err := readFacts(ctx, s.db, requests, s.settings)
	if err != nil {
		return nil, err
	}
	found, err := s.findRetries(ctx, requests)
	if err != nil {
		return nil, err
	}
	for i, r := range requests {
		// What can never be, and a sale that is not open, is for the transaction to
		// refuse: that is recorded.
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
