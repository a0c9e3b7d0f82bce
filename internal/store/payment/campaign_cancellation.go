package payment

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// QueueGiveUpCampaign gives up the payments of a cancelled campaign that can still be
// given up without a refund, as [Phase.BeforeCapture] says. Workers that have them are
// fenced, and they are due at once. It adds their names to given. Call it under the
// campaign's lock.
func QueueGiveUpCampaign(b *pgx.Batch, campaignID uuid.UUID, given *[]Ref) {
	b.Queue(`SELECT FROM payments WHERE campaign_id = $1 AND finished_at IS NULL ORDER BY purchase_id FOR NO KEY UPDATE`, campaignID)
	b.Queue(`
		UPDATE payments
		SET phase = 'expiring', ending = 'campaign-cancelled', version = version + 1, lease_until = NULL, due_at = clock_timestamp(),
		    next_action = NULL, `+waitsNoMore+`
		WHERE campaign_id = $1 AND finished_at IS NULL AND `+beforeCapture+`
		RETURNING purchase_id, campaign_id, job_id, version`, campaignID).Query(func(rows pgx.Rows) (err error) {
		*given, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
		return err
	})
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
// in time. The longest overdue come first. It locks what it finds and leaves out what is locked, so that nobody behind waits for that:
// queue it after the statement that locks the campaign.
func QueueOutOfTime(b *pgx.Batch, campaignID uuid.UUID, limit int, found *[]Ref) {
	b.Queue(`
		SELECT purchase_id, campaign_id, job_id, version FROM payments
		WHERE campaign_id = $1 AND finished_at IS NULL AND phase = 'expiring' AND intent_id IS NOT NULL
		  AND latest <= (SELECT clock_timestamp())
		ORDER BY latest, purchase_id LIMIT $2`+postgres.SkipLocked.SQL(), campaignID, limit).Query(func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
		return err
	})
}
