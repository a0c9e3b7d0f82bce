package sale

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/outbox"
)

// Unlocked returns those of the campaigns that no other transaction has locked now. When it
// has waited in vain, as long as wait says, it returns none.
func (s *Seller) Unlocked(ctx context.Context, campaigns []uuid.UUID, wait Wait) (free []uuid.UUID, err error) {
	locked := make(map[uuid.UUID]bool, len(campaigns))
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		wait.queueLock(&b, campaigns, locked)
		return tx.SendBatch(ctx, &b).Close()
	})
	switch {
	case wait.gaveUp(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("sale.Unlocked: %w", err)
	}
	for id := range locked {
		free = append(free, id)
	}
	return free, nil
}

// Regroup puts the jobs of messages that are not final into new messages, each of one
// campaign, and returns these: see [outbox.Regroup].
func (s *Seller) Regroup(ctx context.Context, ids []uuid.UUID) (messages []outbox.Message, err error) {
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		messages, err = outbox.Regroup(ctx, tx, ids)
		return err
	})
	return messages, err
}
