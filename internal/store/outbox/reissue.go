package outbox

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// lockMessages locks messages $1 uuid[] in the order of their ids, as every
// statement that changes several of them does.
const lockMessages = `SELECT id FROM outbox_messages WHERE id = ANY($1) ORDER BY id FOR UPDATE`

// Delete deletes messages whose tasks are done, unless one of their jobs is still queued: a task
// may have named others.
func Delete(ctx context.Context, db postgres.DB, ids []uuid.UUID) error {
	_, err := db.Exec(ctx, `
		DELETE FROM outbox_messages m WHERE id IN (`+lockMessages+`)
		  AND NOT EXISTS (SELECT FROM unnest(m.jobs) AS i (id)
			CROSS JOIN LATERAL (SELECT state, purchase_id FROM jobs WHERE id = i.id OFFSET 0) j
			WHERE j.state = 'queued' AND j.purchase_id IS NULL)`, ids)
	return fault.At(err, "outbox.Delete")
}

// MarkSeen records that the tasks of messages are waiting in the queue now.
func MarkSeen(ctx context.Context, db postgres.DB, ids []uuid.UUID) error {
	_, err := db.Exec(ctx, `UPDATE outbox_messages SET seen_at = clock_timestamp() WHERE id IN (`+lockMessages+`)`, ids)
	return fault.At(err, "outbox.MarkSeen")
}

// Reissue replaces lost messages by new ones for those of their jobs that are still
// queued, and returns the new messages. The caller enqueues them after the commit.
// Two calls at once are safe: only one of them can delete a message.
//
// The delivery grows only for orphaned, a subset of lost: a worker had their jobs
// and died. A task that was never enqueued, or that Redis has lost, says nothing
// about its jobs.
func Reissue(ctx context.Context, tx pgx.Tx, lost, orphaned []uuid.UUID) ([]job.Message, error) {
	bundles, err := replace(ctx, tx, lost, orphaned, false)
	return bundles, fault.At(err, "outbox.Reissue")
}

// replace writes what bundle returns.
func replace(ctx context.Context, tx pgx.Tx, ids, orphaned []uuid.UUID, byCampaign bool) ([]job.Message, error) {
	bundles, err := bundle(ctx, tx, ids, orphaned, byCampaign)
	if err != nil {
		return nil, err
	}
	var b pgx.Batch
	for _, m := range bundles {
		ids := make([]uuid.UUID, len(m.Jobs))
		for i, j := range m.Jobs {
			ids[i] = j.ID
		}
		b.Queue(`INSERT INTO outbox_messages (id, kind, delivery, jobs) VALUES ($1, $2, $3, $4)`, m.ID, m.Kind, m.Delivery, ids)
	}
	if b.Len() == 0 {
		return nil, nil
	}
	return bundles, tx.SendBatch(ctx, &b).Close()
}

// bundle deletes messages and puts those of their jobs that are still queued into new
// messages, on demand one campaign in each.
func bundle(ctx context.Context, tx pgx.Tx, ids, orphaned []uuid.UUID, byCampaign bool) (bundles []job.Message, err error) {
	rows, err := tx.Query(ctx, `
		WITH gone AS (DELETE FROM outbox_messages WHERE id IN (`+lockMessages+`)
		              RETURNING kind, delivery + (id = ANY(coalesce($2::uuid[], '{}')))::int AS delivery, jobs)
		SELECT g.kind, g.delivery, j.id, coalesce(j.campaign_id, '00000000-0000-0000-0000-000000000000'), coalesce(j.traceparent, '')
		FROM gone g
		CROSS JOIN LATERAL unnest(g.jobs) AS i (id)
		CROSS JOIN LATERAL (SELECT id, campaign_id, traceparent, state, purchase_id FROM jobs WHERE id = i.id) j
		WHERE j.state = 'queued' AND j.purchase_id IS NULL
		ORDER BY g.kind, g.delivery, CASE WHEN $3 THEN j.campaign_id END, j.id`, ids, orphaned, byCampaign)
	if err != nil {
		return nil, err
	}
	var kind job.Kind
	var delivery int
	var ref job.Ref
	var trace string
	_, err = pgx.ForEachRow(rows, []any{&kind, &delivery, &ref.ID, &ref.CampaignID, &trace}, func() error {
		last := len(bundles) - 1
		if last < 0 || bundles[last].Kind != kind || bundles[last].Delivery != delivery || len(bundles[last].Jobs) == job.MaxJobs ||
			kind == job.KindDraw || // a draw waits by itself
			byCampaign && bundles[last].Jobs[0].CampaignID != ref.CampaignID {
			bundles = append(bundles, job.Message{ID: uuidv7.New(), Kind: kind, Delivery: delivery})
			last++
		}
		bundles[last].Jobs = append(bundles[last].Jobs, ref.In(trace))
		return nil
	})
	return bundles, err
}
