package payment

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// beforeCapture is Phase.BeforeCapture in SQL, and the condition of the index
// payments_over.
const beforeCapture = `phase IN ('reserved', 'creating', 'confirming', 'action', 'declined', 'processing')`

// Taking is a cancellation that takes back a purchase whose payment is open.
type Taking struct {
	PurchaseID uuid.UUID
	JobID      uuid.UUID // of the cancellation, which ends with the payment
	By         string
	Reason     string // may be empty
}

// QueueGiveUp gives payments up that buyers take back before they are captured: they are
// expiring, and due at once. A worker that has one of them is fenced, so it confirms and
// captures nothing any more.
func QueueGiveUp(b *pgx.Batch, taken []Taking) {
	queueTaken(b, taken, `, phase = 'expiring', ending = 'cancelled', version = p.version + 1, lease_until = NULL, due_at = clock_timestamp(),
		    next_action = NULL, `+waitsNoMore, `p.`+beforeCapture, "payments before their capture")
}

// QueueTakeCaptured notes cancellations of purchases whose money is being taken, or was.
// They change no version: a capture goes on, and what was captured is returned
// when the payment is concluded.
func QueueTakeCaptured(b *pgx.Batch, taken []Taking) {
	queueTaken(b, taken, ``, `p.phase IN ('capturing', 'captured')`, "payments that are captured")
}

func queueTaken(b *pgx.Batch, taken []Taking, set, where, what string) {
	n := len(taken)
	ids, jobs, by, reasons := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n), make([]string, n)
	for i, t := range taken {
		ids[i], jobs[i], by[i], reasons[i] = t.PurchaseID, t.JobID, t.By, t.Reason
	}
	b.Queue(`
		UPDATE payments p SET cancel_job = t.job, cancelled_by = t.by, cancel_reason = nullif(t.reason, '')`+set+`
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) AS t (id, job, by, reason)
		WHERE p.purchase_id = t.id AND p.cancel_job IS NULL AND `+where, ids, jobs, by, reasons).Exec(postgres.Exactly(n, what))
}

// Expire gives up to limit payments up that are over, the oldest first: those
// that no worker has, and whose capture was not begun. They are expiring, and due at once. One
// whose card was declined, and that got no other, ends as declined.
// It skips what is locked.
func Expire(ctx context.Context, tx pgx.Tx, limit int) ([]Ref, error) {
	expired, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[Ref], `
		WITH over AS (
			SELECT purchase_id, phase AS was FROM payments
			WHERE `+beforeCapture+` AND over_at <= (SELECT clock_timestamp()) AND (lease_until IS NULL OR lease_until <= clock_timestamp())
			ORDER BY over_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
		), steps AS (
			INSERT INTO payment_steps (purchase_id, event) SELECT purchase_id, $2 FROM over WHERE was <> 'declined'
		)
		UPDATE payments p
		SET phase = 'expiring', ending = CASE was WHEN 'declined' THEN 'declined' ELSE 'expired' END, version = p.version + 1, lease_until = NULL, due_at = clock_timestamp(),
		    next_action = NULL, `+waitsNoMore+`
		FROM over o WHERE p.purchase_id = o.purchase_id
		RETURNING `+refColumns, limit, StepExpired)
	return expired, fault.At(err, "payment.Expire")
}
