package payment

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

// beforeCapture is Phase.BeforeCapture in SQL, and the condition of the index
// payments_over.
const beforeCapture = `phase IN ('reserved', 'creating', 'confirming', 'action', 'declined', 'processing')`

// Cancellation is what a cancellation job says of a purchase whose payment is open.
type Cancellation struct {
	PurchaseID uuid.UUID
	JobID      uuid.UUID // of the cancellation, which ends with the payment
	By         string
	Reason     string // may be empty
}

// QueueGiveUp gives payments up that buyers take back before they are captured: they are
// expiring, and due at once. A worker that has one of them is fenced, so it confirms and
// captures nothing any more.
func QueueGiveUp(b *pgx.Batch, cancelled []Cancellation) {
	queueCancelled(b, cancelled, `, phase = 'expiring', ending = 'cancelled', version = p.version + 1, lease_until = NULL, due_at = clock_timestamp(),
		    next_action = NULL, `+unblocked, `p.`+beforeCapture, "payments before their capture")
}

// QueueCancelCaptured notes cancellations of purchases whose money is being taken, or was.
// They change no version: a capture goes on, and what was captured is returned
// when the payment is settled.
func QueueCancelCaptured(b *pgx.Batch, cancelled []Cancellation) {
	queueCancelled(b, cancelled, ``, `p.phase IN ('capturing', 'captured')`, "payments that are captured")
}

func queueCancelled(b *pgx.Batch, cancelled []Cancellation, set, where, what string) {
	n := len(cancelled)
	ids, jobs, by, reasons := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n), make([]string, n)
	for i, c := range cancelled {
		ids[i], jobs[i], by[i], reasons[i] = c.PurchaseID, c.JobID, c.By, c.Reason
	}
	b.Queue(`
		UPDATE payments p SET cancel_job = c.job, cancelled_by = c.by, cancel_reason = nullif(c.reason, '')`+set+`
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) AS c (id, job, by, reason)
		WHERE p.purchase_id = c.id AND p.cancel_job IS NULL AND `+where, ids, jobs, by, reasons).Exec(postgres.Exactly(n, what))
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
		    next_action = NULL, `+unblocked+`
		FROM over o WHERE p.purchase_id = o.purchase_id
		RETURNING `+refColumns, limit, StepExpired)
	return expired, fault.At(err, "payment.Expire")
}

// QueueGiveUpCampaign gives up the payments of a cancelled campaign that can still be
// given up without a refund, as [Phase.BeforeCapture] says. Workers that have them are
// fenced, and they are due at once. It adds their names to given. Call it under the
// campaign's lock.
func QueueGiveUpCampaign(b *pgx.Batch, campaignID uuid.UUID, given *[]Ref) {
	b.Queue(`SELECT FROM payments WHERE campaign_id = $1 AND finished_at IS NULL ORDER BY purchase_id FOR NO KEY UPDATE`, campaignID)
	b.Queue(`
		UPDATE payments
		SET phase = 'expiring', ending = 'campaign-cancelled', version = version + 1, lease_until = NULL, due_at = clock_timestamp(),
		    next_action = NULL, `+unblocked+`
		WHERE campaign_id = $1 AND finished_at IS NULL AND `+beforeCapture+`
		RETURNING purchase_id, campaign_id, version`, campaignID).Query(refsInto(given))
}

// CountOpen counts the payments of a campaign whose end is not known, without the late
// ones: those have no positions any more, and may take as long as they like.
func CountOpen(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (n int, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) FROM payments WHERE campaign_id = $1 AND finished_at IS NULL AND phase <> 'late'`, campaignID).Scan(&n)
	return n, fault.At(err, "payment.CountOpen(%s)", campaignID)
}

// QueueOutOfTime finds up to limit payments of a campaign whose reservations should have
// ended, with every extension, and whose end only the provider knows: they were given up,
// and it has not answered. One that is being captured is none of them: its buyer has paid
// in time. The longest overdue come first. It locks what it finds and leaves out what is locked, so that no transaction behind waits for that:
// queue it after the statement that locks the campaign.
func QueueOutOfTime(b *pgx.Batch, campaignID uuid.UUID, limit int, found *[]Ref) {
	b.Queue(`
		SELECT purchase_id, campaign_id, version FROM payments
		WHERE campaign_id = $1 AND finished_at IS NULL AND phase = 'expiring' AND intent_id IS NOT NULL
		  AND latest <= (SELECT clock_timestamp())
		ORDER BY latest, purchase_id LIMIT $2`+postgres.SkipLocked.SQL(), campaignID, limit).Query(refsInto(found))
}

// EndUnsent leads payments as far as they go without a provider, those that still have
// their versions and that no worker has. One that is given up and has no intent has
// ended: nothing can have been paid. It returns the payments whose end is known, for a
// transaction of the sale, and those that wait for a key.
func EndUnsent(ctx context.Context, tx pgx.Tx, items []lease.Item) (known, waiting []Ref, err error) {
	purchases, versions := lease.Split(items)
	var b pgx.Batch
	b.Queue(`SELECT FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id FOR NO KEY UPDATE`, purchases) // the UPDATE alone has no order
	free := ` FROM payments p JOIN unnest($1::uuid[], $2::bigint[]) AS r (id, version) ON p.purchase_id = r.id AND p.version = r.version
		WHERE ` + Leases.Free()
	read := func(into *[]Ref, condition string) {
		b.Queue(`SELECT `+refColumns+free+condition+` ORDER BY p.purchase_id`, purchases, versions).Query(refsInto(into))
	}
	var ended []Ref
	read(&known, ` AND p.phase IN ('captured', 'ended')`)
	read(&waiting, ` AND p.finished_at IS NULL AND p.phase NOT IN ('captured', 'ended') AND NOT (`+unsent+`) AND p.waiting_for IS DISTINCT FROM 'operator'`)
	b.Queue(`
		UPDATE payments p SET phase = 'ended', version = p.version + 1, lease_until = NULL, `+unblocked+`
		FROM (SELECT p.purchase_id`+free+` AND `+unsent+`) f WHERE p.purchase_id = f.purchase_id
		RETURNING `+refColumns, purchases, versions).Query(refsInto(&ended))
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, fmt.Errorf("payment.EndUnsent: %w", err)
	}
	return append(known, ended...), waiting, nil
}

// unsent is what was given up before anything was sent.
const unsent = `p.phase = 'expiring' AND p.intent_id IS NULL`
