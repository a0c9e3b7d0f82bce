package purchase

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// QueueComplete makes open purchases completed: they are paid.
func QueueComplete(b *pgx.Batch, ids []uuid.UUID) {
	b.Queue(`
		UPDATE purchases SET state = 'completed', completed_at = clock_timestamp()
		WHERE id = ANY($1) AND state IN ('pending', 'awaiting_action')`, ids).Exec(postgres.Exactly(len(ids), "open purchases"))
}

// End is how a purchase ends that is not, or no longer, bought.
type End struct {
	ID      uuid.UUID
	State   State       // Failed, Cancelled or Refunding
	Failure *fault.Code // why, when it was not cancelled
	By      string      // who cancelled it; empty: it was not cancelled
	Reason  string      // why it was cancelled; may be empty
}

// queueEnd makes purchases that are in one of the states from end. Each is there once.
// Their failure and cancellation stay when the end has none.
func queueEnd(b *pgx.Batch, ends []End, from string, what string) {
	n := len(ends)
	ids, states, failures := make([]uuid.UUID, n), make([]string, n), make([]*string, n)
	by, reasons := make([]string, n), make([]string, n)
	for i, e := range ends {
		ids[i], states[i], by[i], reasons[i] = e.ID, string(e.State), e.By, e.Reason
		if e.Failure != nil {
			code := string(*e.Failure)
			failures[i] = &code
		}
	}
	b.Queue(`
		UPDATE purchases p
		SET state = e.state, failure = coalesce(e.failure, p.failure),
		    cancelled_at = CASE WHEN e.by <> '' THEN clock_timestamp() ELSE p.cancelled_at END,
		    cancelled_by = CASE WHEN e.by <> '' THEN e.by ELSE p.cancelled_by END,
		    cancel_reason = CASE WHEN e.by <> '' THEN nullif(e.reason, '') ELSE p.cancel_reason END
		FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[]) AS e (id, state, failure, by, reason)
		WHERE p.id = e.id AND p.state IN (`+from+`)`, ids, states, failures, by, reasons).Exec(postgres.Exactly(n, what))
}

// QueueEndOpen ends open purchases: they fail, are cancelled, or are given back because
// their money came when they could not be had any more.
func QueueEndOpen(b *pgx.Batch, ends []End) {
	queueEnd(b, ends, `'pending', 'awaiting_action'`, "open purchases")
}

// QueueCancel ends completed purchases: they are cancelled, or the money of a card is given back.
// Their items stay on record.
func QueueCancel(b *pgx.Batch, ends []End) {
	queueEnd(b, ends, `'completed'`, "completed purchases")
}

// QueueRefundingLate notes that the money of purchases is given back that had ended
// without any.
func QueueRefundingLate(b *pgx.Batch, ends []End) {
	queueEnd(b, ends, `'failed', 'cancelled'`, "ended purchases")
}

// QueueReassign replaces the items of purchases by as many others, at the same prices. It
// belongs to QueueComplete, which makes sure that they were open.
func QueueReassign(b *pgx.Batch, purchases []Purchase) {
	ids, n := make([]uuid.UUID, len(purchases)), 0
	for i, p := range purchases {
		ids[i], n = p.ID, n+len(p.Items)
	}
	b.Queue(`DELETE FROM purchase_items WHERE purchase_id = ANY($1)`, ids).Exec(postgres.Exactly(n, "items"))
	queueItems(b, purchases)
}

// QueueNotAwaiting notes that open purchases do not wait for their buyers any more.
func QueueNotAwaiting(b *pgx.Batch, ids []uuid.UUID) {
	b.Queue(`UPDATE purchases SET state = 'pending' WHERE id = ANY($1) AND state = 'awaiting_action'`, ids)
}

// QueueCancelPart cancels positions of completed purchases, by purchase. They must be there, and
// others must be left: of two cancellations of a position the second changes nothing.
func QueueCancelPart(b *pgx.Batch, parts map[uuid.UUID][]PartialCancellation) error {
	var ids, owners []uuid.UUID
	var records [][]byte
	var layers, cols []int
	for id, cancelled := range parts {
		record, err := json.Marshal(cancelled)
		if err != nil {
			return fmt.Errorf("purchase.QueueCancelPart(%s): %w", id, err)
		}
		ids, records = append(ids, id), append(records, record)
		for _, part := range cancelled {
			for _, item := range part.Items {
				owners, layers, cols = append(owners, id), append(layers, item.Layer), append(cols, item.Column)
			}
		}
	}
	b.Queue(`
		DELETE FROM purchase_items i USING unnest($1::uuid[], $2::int[], $3::int[]) AS c (purchase_id, layer, col)
		WHERE i.purchase_id = c.purchase_id AND i.layer = c.layer AND i.col = c.col`, owners, layers, cols).Exec(postgres.Exactly(len(owners), "items"))
	b.Queue(`
		UPDATE purchases p
		SET partial_cancellations = coalesce(p.partial_cancellations, '[]') || (
			SELECT jsonb_agg(e || jsonb_build_object('at', clock_timestamp()) ORDER BY n) FROM jsonb_array_elements(c.parts) WITH ORDINALITY AS x (e, n))
		FROM unnest($1::uuid[], $2::jsonb[]) AS c (id, parts)
		WHERE p.id = c.id AND p.state = 'completed' AND EXISTS (SELECT FROM purchase_items WHERE purchase_id = p.id)`, ids, records).
		Exec(postgres.Exactly(len(ids), "completed purchases that keep positions"))
	return nil
}

// QueueFollow makes card purchases that are given back what their refunds have come to:
// refunded when each of ours is finished, else refunding. Refunds out of band leave them
// alone. The purchases are locked first: several refunds of one may end at once.
func QueueFollow(b *pgx.Batch, ids ...uuid.UUID) {
	b.Queue(`SELECT FROM purchases WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`, ids)
	b.Queue(`
		UPDATE purchases p SET state = r.state
		FROM (SELECT purchase_id, CASE WHEN bool_and(finished_at IS NOT NULL) THEN 'refunded' ELSE 'refunding' END AS state
		      FROM refunds WHERE purchase_id = ANY($1) AND number IS NOT NULL GROUP BY purchase_id) r
		WHERE p.id = r.purchase_id AND p.state IN ('refunding', 'refunded') AND p.state <> r.state`, ids)
}

// soldPage is how many sold positions one statement reads: half a million in one would
// take longer than statements may.
const soldPage = 8192

// SoldLines yields every sold position of a campaign as it is published, by layer and
// column. It reads them page by page, so the list is whole only when it cannot change
// meanwhile: the campaign is drawing or completed, or db is a snapshot. It ends at the
// first error. From the freeze on, drawing.ListOf has the list.
func SoldLines(ctx context.Context, db postgres.DB, campaignID uuid.UUID) iter.Seq2[fairdraw.SoldLine, error] {
	return soldLines(ctx, db, campaignID, soldPage)
}

func soldLines(ctx context.Context, db postgres.DB, campaignID uuid.UUID, size int) iter.Seq2[fairdraw.SoldLine, error] {
	return func(yield func(fairdraw.SoldLine, error) bool) {
		var next shape.Position
		for {
			page, err := soldFrom(ctx, db, campaignID, next, size)
			if err != nil {
				yield(fairdraw.SoldLine{}, fmt.Errorf("purchase.SoldLines(%s): %w", campaignID, err))
				return
			}
			for _, line := range page {
				if !yield(line, nil) {
					return
				}
				next = shape.Position{Layer: line.Layer, Column: line.Column + 1}
			}
			if len(page) < size {
				return
			}
		}
	}
}

// soldFrom returns up to n sold positions of a campaign as they are published, by layer
// and column, the first of them at first or behind it. The positions are chosen first, so
// that only their purchases are looked up.
func soldFrom(ctx context.Context, db postgres.DB, campaignID uuid.UUID, first shape.Position, n int) ([]fairdraw.SoldLine, error) {
	page, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (fairdraw.SoldLine, error) {
		var s fairdraw.Sold
		var nonce []byte
		err := row.Scan(&s.Layer, &s.Column, &s.PurchaseID, &nonce, &s.UserID)
		copy(s.Nonce[:], nonce)
		return s.Line(), err
	}, `
		SELECT s.layer, s.col, s.purchase_id, p.nonce, p.user_id
		FROM (SELECT layer, col, purchase_id FROM positions
		      WHERE campaign_id = $1 AND state = 'sold' AND (layer, col) >= ($2, $3)
		      ORDER BY layer, col LIMIT $4) s
		JOIN purchases p ON p.id = s.purchase_id
		ORDER BY s.layer, s.col`, campaignID, first.Layer, first.Column, n)
	return page, fault.At(err, "purchase.soldFrom(%s, %v)", campaignID, first)
}
