package holds

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/tracing"
	"triprize/internal/store/job"
)

// task is one request in the queue of its campaign: for a new hold, or to extend or
// release one.
type task struct {
	Request
	kind kind
	hold uuid.UUID // to be extended or released
}

type kind int

const (
	create kind = iota
	extend
	release // has no idempotency key: to release twice is to release once
)

// result is the outcome of a task.
type result struct {
	job.Done
	released bool // the hold, by this task
}

// flush does tasks of one campaign, in one transaction.
func (s *Service) flush(ctx context.Context, f batch.FlushInfo[uuid.UUID], tasks []task) ([]result, error) {
	ctx = postgres.As(ctx, postgres.TxHold)
	began := s.taken.now() // before anything is read
	t := &transaction{service: s, tasks: tasks, results: make([]result, len(tasks))}
	db := s.gate.FirstTry(s.rowWait / time.Duration(1+f.Waiting/flushes)) // the more campaigns wait for a flush, the shorter
	if f.Retry {
		db = s.gate.Retry(s.retryWait)
	}
	if err := t.run(ctx, db); err != nil {
		return nil, fmt.Errorf("holds.flush: %w", err)
	}
	failpoint.Hit("holds.committed", nil)
	if t.effects != nil {
		s.remember(t.effects, began)
	}
	return t.results, nil
}

// transaction is what one flush does.
type transaction struct {
	service *Service
	tasks   []task
	results []result
	effects *effects // nil: none
}

// run claims the keys of tasks, decides those whose key is new, and records their
// answers. Releases have no key.
func (t *transaction) run(ctx context.Context, db postgres.Beginner) (err error) {
	var keyed, unkeyed []int
	var jobs []job.Request
	for i, one := range t.tasks {
		if one.kind == release {
			unkeyed = append(unkeyed, i)
			continue
		}
		keyed, jobs = append(keyed, i), append(jobs, one.Job)
	}
	ctx, spans := tracing.Batch(ctx, "hold", len(t.tasks), job.TracesOf(jobs))
	defer func() { spans.End(err) }()
	decided := false
	if len(keyed) > 0 {
		done, err := job.OnceEach(ctx, db, jobs, func(tx pgx.Tx, fresh []int) ([]job.Answer, error) {
			decided = true
			mine := make([]int, len(fresh))
			for at, i := range fresh {
				mine[at] = keyed[i]
			}
			return t.decide(ctx, tx, mine, unkeyed)
		})
		if err != nil {
			return err
		}
		for at, i := range keyed {
			t.results[i].Done = done[at]
		}
	}
	if decided || len(unkeyed) == 0 {
		return nil
	}
	return postgres.InTx(ctx, db, func(tx pgx.Tx) error { // every other task is a retry
		_, err := t.decide(ctx, tx, nil, unkeyed)
		return err
	})
}
