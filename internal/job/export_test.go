package job

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What the sweep lost-jobs is made of.
var (
	Overdue  = overdue
	MarkSeen = markSeen
)

// Reissue replaces lost messages.
func Reissue(ctx context.Context, tx pgx.Tx, lost, orphaned []uuid.UUID) ([]Message, error) {
	return replaceMessages(ctx, tx, lost, orphaned, false)
}
