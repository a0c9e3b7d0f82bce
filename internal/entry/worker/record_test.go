package worker

import (
	"context"
	"sync"

	"triprize/internal/job"
	"triprize/internal/sale"
)

// transaction is one transaction of a shard.
type transaction struct {
	refs   []job.Ref
	wait   sale.LockWait
	report sale.Report
}

// transactions are those of one kind of job.
type transactions struct {
	mu   sync.Mutex
	made []transaction
}

// record notes every transaction of a kind. before is called first; its error is that
// of the transaction.
func record(s *finalizer, before func(wait sale.LockWait) error) *transactions {
	r, finalize := &transactions{}, s.finalize
	s.finalize = func(ctx context.Context, refs []job.Ref, wait sale.LockWait) (report sale.Report, err error) {
		if before != nil {
			err = before(wait)
		}
		if err == nil {
			report, err = finalize(ctx, refs, wait)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.made = append(r.made, transaction{refs, wait, report})
		return report, err
	}
	return r
}

func (r *transactions) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.made)
}

// take returns the transactions since the last call.
func (r *transactions) take() []transaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	made := r.made
	r.made = nil
	return made
}

// waits counts the transactions that may have waited.
func (r *transactions) waits() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.made {
		if one.wait != sale.SkipLocked {
			n++
		}
	}
	return n
}
