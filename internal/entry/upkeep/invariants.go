package upkeep

import (
	"context"
	"log/slog"
	"slices"

	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/trail"
	"triprize/internal/wallet"
	"triprize/internal/webhook"
)

// Invariants are those of all topics.
var Invariants = slices.Concat(job.Invariants, campaign.Invariants, inventory.Invariants, purchase.Invariants, wallet.Invariants, payment.Invariants,
	drawing.Invariants, webhook.Invariants, trail.Invariants)

// Check returns the violations of [Invariants] in one snapshot of the database, see [audit.Check].
func Check(ctx context.Context, db postgres.Beginner, limit int) ([]audit.Violation, error) {
	return audit.Check(ctx, db, Invariants, limit)
}

// NewAuditor returns an auditor of [Invariants], which walks over a running system.
func NewAuditor(db postgres.Pool, logger *slog.Logger) *audit.Auditor {
	return audit.NewAuditor(db, walks, logger)
}
