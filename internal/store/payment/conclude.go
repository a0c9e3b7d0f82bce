package payment

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// QueueOfJobs finds the payments of purchase jobs.
func QueueOfJobs(b *pgx.Batch, jobs []uuid.UUID, found *[]Ref) {
	b.Queue(`
		SELECT p.purchase_id, p.campaign_id, p.job_id, p.version FROM unnest($1::uuid[]) WITH ORDINALITY AS j (id, place)
		CROSS JOIN LATERAL (SELECT * FROM payments WHERE job_id = j.id) p ORDER BY j.place`, jobs).
		Query(func(rows pgx.Rows) (err error) {
			*found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
			return err
		})
}

// QueueLock locks the payments of purchases in the order of their ids and reads them
// into a map. It comes after the locks of their campaigns. mode says what it does with
// payments that another transaction has locked. locked gets the payments that it has
// locked, and into all of them.
func QueueLock(b *pgx.Batch, purchases []uuid.UUID, mode postgres.LockMode, locked map[uuid.UUID]bool, into map[uuid.UUID]*Payment) {
	var id uuid.UUID
	b.Queue(`SELECT purchase_id FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id`+mode.SQL(), purchases).Query(postgres.Each(func() { locked[id] = true }, &id))
	QueueGet(b, purchases, into)
}

// Conclusion is what a transaction of the sale has decided about a payment.
type Conclusion struct {
	PurchaseID uuid.UUID
	Version    int64 // at which it was read
	From, To   Phase
}

// recheck is when a payment that was cancelled is looked at once more: an event about it
// may have come while it was concluded.
const recheck = time.Minute

// QueueConclude moves payments to the phases that were decided. A worker that has one of
// them is fenced. Each must still have the version at which it was read.
//
// A settled or returned payment is not looked at again, unless an event comes; a late one
// is due at once, and a cancelled one after a while, if it was ever at the provider. Events about refunds
// that came before the money was in our books are open again.
func QueueConclude(b *pgx.Batch, conclusions []Conclusion) {
	n := len(conclusions)
	ids, versions, from, to := make([]uuid.UUID, n), make([]int64, n), make([]string, n), make([]string, n)
	for i, c := range conclusions {
		ids[i], versions[i], from[i], to[i] = c.PurchaseID, c.Version, string(c.From), string(c.To)
	}
	b.Queue(`
		UPDATE payments p
		SET version = p.version + 1, phase = c.next, lease_until = NULL, next_action = NULL, `+waitsNoMore+`,
		    due_at = CASE WHEN c.next = 'late' THEN clock_timestamp()
		                  WHEN c.next = 'cancelled' AND p.intent_id IS NOT NULL THEN clock_timestamp() + $5 * interval '1 second' END,
		    finished_at = CASE WHEN c.next IN ('settled', 'refund_due', 'cancelled') THEN coalesce(p.finished_at, clock_timestamp()) END
		FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[]) AS c (id, version, phase, next)
		WHERE p.purchase_id = c.id AND p.version = c.version AND p.phase = c.phase`, ids, versions, from, to, recheck.Seconds()).
		Exec(postgres.Exactly(n, "payments"))
	b.Queue(`
		UPDATE payment_events e SET handled_at = NULL, outcome = NULL FROM payments p
		WHERE p.purchase_id = ANY($1) AND p.received > 0 AND e.intent_id = p.intent_id AND e.outcome = 'uncaptured'`, ids)
}
