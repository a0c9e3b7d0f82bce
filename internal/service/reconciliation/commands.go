package reconciliation

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/balance"
	"triprize/internal/store/job"
)

// Service carries out what operators decide about differences.
type Service struct {
	db     postgres.Beginner
	render func(balance.Difference) any
}

// NewService returns a Service; db is a pool, or a view of it for transactions that may wait
// for locks. render makes the answer's body from a difference.
func NewService(db postgres.Beginner, render func(balance.Difference) any) *Service {
	return &Service{db: db, render: render}
}

// Explain notes why a difference is none. One that is not open is a state-conflict Error,
// and an unknown one a not-found Error.
func (s *Service) Explain(ctx context.Context, r job.Request, id uuid.UUID, by, reason string) (job.Accepted, error) {
	lock := func(ctx context.Context, tx pgx.Tx) (balance.Difference, error) { return balance.Lock(ctx, tx, id) }
	_, accepted, err := job.Edit(ctx, s.db, r, lock, func(b *pgx.Batch, known balance.Difference) error {
		if state := known.State(); state != balance.Open {
			return fault.New(fault.StateConflict, "the difference is %s already", state)
		}
		balance.QueueExplain(b, id, by, reason)
		return nil
	}, s.render)
	return accepted, err
}
