package payment

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// columns are the fields of a Payment, in order.
const columns = `p.purchase_id, p.job_id, p.campaign_id, p.amount, p.currency, p.payment_method, p.return_url, p.phase, p.version, p.lease_until,
	p.due_at, p.wakes, p.deadline, p.latest, p.awaits_until, p.kept_since, p.declined_until, p.over_at <= clock_timestamp(), p.attempt, p.attempt_at, p.tries,
	coalesce(extract(epoch FROM clock_timestamp() - p.attempt_at) * interval '1 second', interval '0'), p.intent_id, p.intent_status, p.livemode, p.received,
	p.next_action, p.ending, p.uncancellable, p.decline, p.cancel_job, p.cancelled_by, p.cancel_reason, p.faults, p.waiting_for, p.last_error,
	p.disputed_at, p.dispute, p.amount_disputed, p.created_at, p.finished_at, p.resolved_as, p.resolved_by, p.resolve_reason`

var scan = pgx.RowToStructByPos[Payment]

// Get returns the payment of a purchase, and false when it has none.
func Get(ctx context.Context, db postgres.DB, purchaseID uuid.UUID) (p Payment, ok bool, err error) {
	p, err = postgres.CollectOne(ctx, db, scan, `SELECT `+columns+` FROM payments p WHERE purchase_id = $1`, purchaseID)
	ok, err = postgres.Found(err)
	return p, ok, fault.At(err, "payment.Get(%s)", purchaseID)
}

// QueueGet reads the payments of purchases into a map. It leaves out those that have none.
func QueueGet(b *pgx.Batch, purchases []uuid.UUID, into map[uuid.UUID]*Payment) {
	queueRead(b, `SELECT `+columns+` FROM payments p WHERE purchase_id = ANY($1)`, purchases, into)
}

func queueRead(b *pgx.Batch, sql string, purchases []uuid.UUID, into map[uuid.UUID]*Payment) {
	b.Queue(sql, purchases).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scan)
		for _, p := range found {
			into[p.PurchaseID] = &p
		}
		return err
	})
}

// OfIntents returns the payments that have intents of the provider, by intent. It leaves
// out those that nobody here knows.
func OfIntents(ctx context.Context, db postgres.DB, intents []string) (map[string]Payment, error) {
	found, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM unnest($1::text[]) AS i (id) CROSS JOIN LATERAL (SELECT * FROM payments WHERE intent_id = i.id) p`, intents)
	if err != nil {
		return nil, fmt.Errorf("payment.OfIntents: %w", err)
	}
	of := make(map[string]Payment, len(found))
	for _, p := range found {
		of[*p.IntentID] = p
	}
	return of, nil
}
