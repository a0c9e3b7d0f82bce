package purchase

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// QueueInsert stores purchases with their items, in two statements. They are completed,
// or with the state Pending they wait for their payments.
func QueueInsert(b *pgx.Batch, purchases []Purchase) {
	n := len(purchases)
	ids, campaigns, users := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n)
	amounts, currencies, methods := make([]int64, n), make([]string, n), make([]string, n) // amounts in minor units
	references, nonces, waits := make([]*string, n), make([][]byte, n), make([]bool, n)
	clients, metadata := make([]string, n), make([][]byte, n)
	for i, p := range purchases {
		ids[i], campaigns[i], users[i] = p.ID, p.CampaignID, p.UserID
		amounts[i], currencies[i], methods[i] = int64(p.Amount), p.Currency, string(p.PaymentMethod)
		references[i], nonces[i], waits[i] = p.PaymentReference, p.Nonce[:], p.State == Pending
		clients[i], metadata[i] = p.Client, p.Metadata.Text()
	}
	b.Queue(`
		INSERT INTO purchases (id, campaign_id, user_id, amount, currency, payment_method, payment_reference, nonce, state, completed_at,
		                       client, metadata)
		SELECT id, campaign_id, user_id, amount, currency, method, reference, nonce,
		       CASE WHEN waits THEN 'pending' ELSE 'completed' END, CASE WHEN NOT waits THEN clock_timestamp() END, client, metadata
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::bool[],
		            $10::text[], $11::jsonb[])
		     AS p (id, campaign_id, user_id, amount, currency, method, reference, nonce, waits, client, metadata)`,
		ids, campaigns, users, amounts, currencies, methods, references, nonces, waits, clients, metadata)
	queueItems(b, purchases)
}

func queueItems(b *pgx.Batch, purchases []Purchase) {
	var owners []uuid.UUID
	var layers, cols []int
	var prices []int64 // minor units
	for _, p := range purchases {
		for _, item := range p.Items {
			owners, layers, cols, prices = append(owners, p.ID), append(layers, item.Layer), append(cols, item.Column), append(prices, int64(item.Price))
		}
	}
	b.Queue(`
		INSERT INTO purchase_items (purchase_id, layer, col, price)
		SELECT * FROM unnest($1::uuid[], $2::int[], $3::int[], $4::bigint[])`, owners, layers, cols, prices)
}

// QueueAwaiting sets whether the payment of an open purchase waits for its buyer. It changes
// nothing when the purchase is not open, which is no failure.
func QueueAwaiting(b *pgx.Batch, id uuid.UUID, awaiting bool) {
	b.Queue(`
		UPDATE purchases SET state = CASE WHEN $2 THEN 'awaiting_action' ELSE 'pending' END
		WHERE id = $1 AND state IN ('pending', 'awaiting_action')`, id, awaiting)
}

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

// QueueEnd ends purchases that are in one of the states from, each once: open ones fail, are
// cancelled, or are refunded; completed ones are cancelled, or the money of a card is refunded; ended
// ones are refunded when money arrives after all. Their items stay on record, and so do their failure
// and cancellation when the end has none.
func QueueEnd(b *pgx.Batch, ends []End, from ...State) {
	if len(ends) == 0 {
		return
	}
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
		WHERE p.id = e.id AND p.state = ANY($6)`, ids, states, failures, by, reasons, from).Exec(postgres.Exactly(n, fmt.Sprint(from, " purchases")))
}

// QueueNotAwaiting makes open purchases pending that wait for their buyers.
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

// QueueFollow sets the state of card purchases that are refunded: refunded when each of our
// refunds is finished, else refunding. Refunds out of band do not count. The purchases are locked first: several refunds of one may end at once.
func QueueFollow(b *pgx.Batch, ids ...uuid.UUID) {
	b.Queue(`SELECT FROM purchases WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`, ids)
	b.Queue(`
		UPDATE purchases p SET state = r.state
		FROM (SELECT purchase_id, CASE WHEN bool_and(state IN ('succeeded', 'resolved')) THEN 'refunded' ELSE 'refunding' END AS state
		      FROM refunds WHERE purchase_id = ANY($1) AND number IS NOT NULL GROUP BY purchase_id) r
		WHERE p.id = r.purchase_id AND p.state IN ('refunding', 'refunded') AND p.state <> r.state`, ids)
}

// JobIsSettled is a condition on a job j: no payment or refund of its purchase is open.
// It is a subquery and no join, so that it is one look-up for each job that is found.
const JobIsSettled = `coalesce((SELECT p.state FROM purchases p WHERE p.id = j.id)
	NOT IN ('pending', 'awaiting_action', 'refunding'), true)`
