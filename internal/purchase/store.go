package purchase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// QueueInsert stores purchases with their items, in two statements. They are completed,
// or with the state Pending they wait for their payments.
func QueueInsert(b *pgx.Batch, purchases []Purchase) {
	n := len(purchases)
	ids, campaigns, jobs, users := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n)
	amounts, currencies, methods := make([]int64, n), make([]string, n), make([]string, n) // amounts in minor units
	references, nonces, waits := make([]*string, n), make([][]byte, n), make([]bool, n)
	clients, metadata := make([]string, n), make([][]byte, n)
	for i, p := range purchases {
		ids[i], campaigns[i], jobs[i], users[i] = p.ID, p.CampaignID, p.JobID, p.UserID
		amounts[i], currencies[i], methods[i] = int64(p.Amount), p.Currency, string(p.PaymentMethod)
		references[i], nonces[i], waits[i] = p.PaymentReference, p.Nonce[:], p.State == Pending
		clients[i], metadata[i] = p.Client, p.Metadata.Text()
	}
	b.Queue(`
		INSERT INTO purchases (id, campaign_id, user_id, job_id, amount, currency, payment_method, payment_reference, nonce, state, completed_at,
		                       client, metadata)
		SELECT id, campaign_id, user_id, job_id, amount, currency, method, reference, nonce,
		       CASE WHEN waits THEN 'pending' ELSE 'completed' END, CASE WHEN NOT waits THEN clock_timestamp() END, client, metadata
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::bool[],
		            $11::text[], $12::jsonb[])
		     AS p (id, campaign_id, user_id, job_id, amount, currency, method, reference, nonce, waits, client, metadata)`,
		ids, campaigns, users, jobs, amounts, currencies, methods, references, nonces, waits, clients, metadata)
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

const columns = `p.id, p.campaign_id, p.user_id, p.job_id, p.amount, p.currency, p.payment_method, p.payment_reference,
	p.state, p.failure, p.nonce, p.created_at, p.completed_at, p.cancelled_at, p.cancelled_by, p.cancel_reason,
	p.client, p.metadata, p.partial_cancellations,
	(SELECT coalesce(json_agg(json_build_object('layer', i.layer, 'column', i.col, 'price', i.price,
	                                            'number', position_number(l.first_number, i.col),
	                                            'label', position_label(l.label, l.first_number, i.col)) ORDER BY i.layer, i.col), '[]')
	 FROM purchase_items i CROSS JOIN LATERAL (SELECT * FROM layers WHERE campaign_id = p.campaign_id AND layer = i.layer OFFSET 0) l
	 WHERE i.purchase_id = p.id)` // OFFSET 0, here and below: a row is looked up by its key, and the planner does not read a whole table instead

func scan(row pgx.CollectableRow) (p Purchase, err error) {
	var nonce []byte
	var cancelledAt *time.Time
	var cancelledBy, reason *string
	err = row.Scan(&p.ID, &p.CampaignID, &p.UserID, &p.JobID, &p.Amount, &p.Currency, &p.PaymentMethod, &p.PaymentReference,
		&p.State, &p.Failure, &nonce, &p.CreatedAt, &p.CompletedAt, &cancelledAt, &cancelledBy, &reason, &p.Client, &p.Metadata, &p.Partial, &p.Items)
	copy(p.Nonce[:], nonce)
	if cancelledAt != nil && cancelledBy != nil { // the table allows both or neither
		p.Cancellation = &Cancellation{At: *cancelledAt, By: *cancelledBy, Reason: reason}
	}
	return p, err
}

// Get returns a purchase, or a not-found Error.
func Get(ctx context.Context, db postgres.DB, who access.Grant, id uuid.UUID) (Purchase, error) {
	p, err := postgres.CollectOne(ctx, db, scan, `SELECT `+columns+` FROM purchases p WHERE id = $1 AND `+seen, id, who.Client(), who.User())
	if errors.Is(err, pgx.ErrNoRows) {
		return Purchase{}, fault.New(fault.NotFound, "there is no purchase %s", id)
	}
	return p, fault.At(err, "purchase.Get(%s)", id)
}

// seen is the condition for the purchases of a grant, $2 its client and $3 its user.
const seen = `($2::text IS NULL OR client = $2) AND ($3::text IS NULL OR user_id = $3)`

// GetAll returns those of the purchases that exist, in any order.
func GetAll(ctx context.Context, db postgres.DB, who access.Grant, ids []uuid.UUID) ([]Purchase, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM unnest($1::uuid[]) AS i (id)
		CROSS JOIN LATERAL (SELECT * FROM purchases WHERE id = i.id AND `+seen+`) p`, ids, who.Client(), who.User())
	return list, fault.At(err, "purchase.GetAll")
}

// Owners returns whose the purchases are, by purchase. It leaves out those that do not exist.
func Owners(ctx context.Context, db postgres.DB, who access.Grant, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	owners := make(map[uuid.UUID]string, len(ids))
	if len(ids) == 0 {
		return owners, nil
	}
	var id uuid.UUID
	var user string
	err := postgres.Scan(ctx, db, func() { owners[id] = user }, []any{&id, &user}, `
		SELECT i.id, p.user_id FROM (SELECT DISTINCT unnest($1::uuid[]) AS id) i
		CROSS JOIN LATERAL (SELECT user_id FROM purchases WHERE id = i.id AND `+seen+`) p`, ids, who.Client(), who.User())
	return owners, fault.At(err, "purchase.Owners")
}

// QueueGet reads purchases into a map. It leaves out those that do not exist.
func QueueGet(b *pgx.Batch, ids []uuid.UUID, into map[uuid.UUID]*Purchase) {
	b.Queue(`
		SELECT `+columns+` FROM unnest($1::uuid[]) AS i (id)
		CROSS JOIN LATERAL (SELECT * FROM purchases WHERE id = i.id OFFSET 0) p`, ids).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scan)
		for _, p := range found {
			into[p.ID] = &p
		}
		return err
	})
}

// QueueAwaiting notes whether the payment of an open purchase waits for its buyer. It
// changes nothing when the purchase is not open, which is no failure.
func QueueAwaiting(b *pgx.Batch, id uuid.UUID, awaiting bool) {
	b.Queue(`
		UPDATE purchases SET state = CASE WHEN $2 THEN 'awaiting_action' ELSE 'pending' END
		WHERE id = $1 AND state IN ('pending', 'awaiting_action')`, id, awaiting)
}

// Filter selects purchases of a list. Empty fields but Who select all. There must be a campaign,
// a user, a reference or an id: each of them has an index.
type Filter struct {
	Who        access.Grant
	CampaignID uuid.UUID
	UserID     string
	Reference  string // of an external payment
	ID         uuid.UUID
	State      State
	Method     PaymentMethod
}

// List returns purchases newest first, and the id before which the next page begins: zero
// after the last one. It goes along the index of the reference, of the user, or of the
// campaign and the client; in a campaign an index finds those that are not completed. The other fields
// are looked up among [postgres.ListWindow] purchases at most: then a page may be short,
// or empty, and not be the last.
func List(ctx context.Context, db postgres.DB, f Filter, p postgres.ListPage) (list []Purchase, next uuid.UUID, err error) {
	l := postgres.List[Purchase]{From: "purchases", Alias: "p", Columns: columns, Scan: scan, ID: func(p Purchase) uuid.UUID { return p.ID }}
	switch {
	case f.ID != uuid.Nil:
		l.Only(`p.id = ?`, f.ID)
	case f.Reference != "":
		l.Along("payment_reference", f.Reference)
		f.Reference = ""
	case f.UserID != "":
		l.Along("user_id", f.UserID)
		f.UserID = ""
	case f.CampaignID != uuid.Nil:
		l.Along("campaign_id", f.CampaignID)
		f.CampaignID = uuid.Nil
		switch {
		case f.State != "" && f.State != Completed:
			l.Along("state", string(f.State))
			l.Only(`p.state <> 'completed'`) // as the index purchases_not_completed says it
			f.State = ""
		case f.Who.Client() != nil: // others may have bought most of the campaign
			l.Along("client", *f.Who.Client())
		}
	}
	l.OnlyOf(f.Who, "p.client", "p.user_id")
	for _, c := range [][2]string{{`p.user_id = ?`, f.UserID}, {`p.state = ?`, string(f.State)}, {`p.payment_method = ?`, string(f.Method)}} {
		if condition, value := c[0], c[1]; value != "" {
			l.Also(condition, value)
		}
	}
	if f.CampaignID != uuid.Nil {
		l.Also(`p.campaign_id = ?`, f.CampaignID)
	}
	if list, next, err = l.Page(ctx, db, p); err != nil {
		return nil, uuid.Nil, fmt.Errorf("purchase.List: %w", err)
	}
	return list, next, nil
}
