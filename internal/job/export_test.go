package job

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What the sweep lost-jobs is made of.
var (
	Overdue  = overdue
	MarkSeen = markSeen
)

// AcceptRefused is Accept for requests with refusals.
var AcceptRefused = accept

// Flush commits one batch of requests.
func Flush(ctx context.Context, in *Intake, requests ...Request) ([]Accepted, error) {
	all := make([]application, len(requests))
	for i, r := range requests {
		all[i].Request = r
	}
	return in.flush(ctx, all)
}

// ReadWaits reads the queues once, and returns how long purchases wait.
func ReadWaits(ctx context.Context, w *QueueWaits, logger *slog.Logger) time.Duration {
	w.read(ctx, logger)
	return w.wait(KindPurchase)
}

// Reissue replaces lost messages.
func Reissue(ctx context.Context, tx pgx.Tx, lost, orphaned []uuid.UUID) ([]Message, error) {
	return replaceMessages(ctx, tx, lost, orphaned, false)
}
