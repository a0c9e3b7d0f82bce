// Package purchase owns purchases and their items: buyer, positions, amount, payment
// method.
//
// A purchase has the id of its job.
//
//	pending ⇄ awaiting_action ─┬─▶ completed ─┬─▶ cancelled   (wallet, external)
//	                           │              └─▶ refunding ─▶ refunded   (card)
//	                           ├─▶ failed ────┬─▶ refunding
//	                           ├─▶ cancelled ─┘
//	                           └─▶ refunding
//
// An external or wallet purchase is stored when it is completed. A card purchase is
// pending while its payment goes on, and awaiting_action while that needs the buyer. A
// failed or unpaid cancelled one becomes refunding when money arrives after all. A completed one whose money the buyer's
// bank has taken back may be cancelled, without a refund.
//
// Positions of a completed purchase can be cancelled while others are left: it stays completed,
// with a [PartialCancellation].
package purchase

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// State is the state of a purchase.
type State string

// The states of a purchase.
const (
	Pending        State = "pending"
	AwaitingAction State = "awaiting_action"
	Completed      State = "completed"
	Failed         State = "failed"
	Cancelled      State = "cancelled"
	Refunding      State = "refunding"
	Refunded       State = "refunded"
)

// Open reports whether a purchase in this state is not paid yet and may still be.
func (s State) Open() bool { return s == Pending || s == AwaitingAction }

// PaymentMethod is how a purchase is paid.
type PaymentMethod string

// The payment methods.
const (
	External PaymentMethod = "external" // the app collects the money itself
	Wallet   PaymentMethod = "wallet"   // the buyer's wallet in the campaign's currency
	Card     PaymentMethod = "card"     // a payment method of the provider
)

// Purchase is one purchase with its items.
type Purchase struct {
	ID               uuid.UUID
	CampaignID       uuid.UUID
	UserID           string
	Client           string // that asked for it
	Amount           money.Amount
	Currency         string
	PaymentMethod    PaymentMethod
	PaymentReference *string
	State            State
	Failure          *fault.Code
	Nonce            [fairdraw.NonceSize]byte // secret; only its owner may see it
	Erased           bool                     // its user is erased, and the nonce zero
	CreatedAt        time.Time
	CompletedAt      *time.Time
	Cancellation     *Cancellation // of all that it had
	Partial          []PartialCancellation
	Items            []Item // without those that were cancelled in part
	Metadata         metadata.Map
}

// PriceOf returns the price of items together.
func PriceOf(items []Item) (amount money.Amount) {
	for _, item := range items {
		amount += item.Price
	}
	return amount
}

// Item is one position of a purchase.
type Item = shape.Item

// FormatItems returns the positions of items as a line of the log has them: layer/column. There are as many as one
// purchase may have.
func FormatItems(items []Item) string {
	places := make([]string, len(items))
	for i, item := range items {
		places[i] = strconv.Itoa(item.Layer) + "/" + strconv.Itoa(item.Column)
	}
	return strings.Join(places, " ")
}

// Cancellation is who cancelled a purchase, when and why.
type Cancellation struct {
	At     time.Time
	By     string  // role:client, and /user when one was signed in
	Reason *string // at most 500 characters; nil: none was given
}

// PartialCancellation is the cancellation of some positions of a purchase, which keeps others.
type PartialCancellation struct {
	JobID  uuid.UUID    `json:"job_id"`
	At     time.Time    `json:"at,omitzero"` // by the database's clock
	By     string       `json:"by"`          // as in Cancellation
	Reason string       `json:"reason,omitempty"`
	Items  []Item       `json:"positions"`
	Amount money.Amount `json:"amount"`
}

const columns = `p.id, p.campaign_id, p.user_id, p.amount, p.currency, p.payment_method, p.payment_reference,
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
	err = row.Scan(&p.ID, &p.CampaignID, &p.UserID, &p.Amount, &p.Currency, &p.PaymentMethod, &p.PaymentReference,
		&p.State, &p.Failure, &nonce, &p.CreatedAt, &p.CompletedAt, &cancelledAt, &cancelledBy, &reason, &p.Client, &p.Metadata, &p.Partial, &p.Items)
	copy(p.Nonce[:], nonce)
	p.Erased = nonce == nil
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

// soldPage is how many sold positions one statement reads: half a million in one would
// take longer than statements may.
const soldPage = 8192

// SoldLines yields every sold position of a campaign as it is published, by layer and
// column, up to the first error. It reads page by page, so the list is whole only when it cannot
// change meanwhile: the campaign is drawing or completed, or db is a snapshot. The holder of an erased user is zero.
func SoldLines(ctx context.Context, db postgres.DB, campaignID uuid.UUID) iter.Seq2[fairdraw.SoldLine, error] {
	return soldLines(ctx, db, campaignID, soldPage)
}

// soldLines chooses the positions of a page first, so that only their purchases are read.
func soldLines(ctx context.Context, db postgres.DB, campaignID uuid.UUID, size int) iter.Seq2[fairdraw.SoldLine, error] {
	return func(yield func(fairdraw.SoldLine, error) bool) {
		for first := (shape.Position{}); ; {
			page, err := postgres.Collect(ctx, db, scanSold, `
				SELECT s.layer, s.col, s.purchase_id, p.nonce, p.user_id
				FROM (SELECT layer, col, purchase_id FROM positions
				      WHERE campaign_id = $1 AND state = 'sold' AND (layer, col) >= ($2, $3)
				      ORDER BY layer, col LIMIT $4) s
				JOIN purchases p ON p.id = s.purchase_id
				ORDER BY s.layer, s.col`, campaignID, first.Layer, first.Column, size)
			if err != nil {
				yield(fairdraw.SoldLine{}, fmt.Errorf("purchase.SoldLines(%s, %v): %w", campaignID, first, err))
				return
			}
			for _, line := range page {
				if !yield(line, nil) {
					return
				}
				first = shape.Position{Layer: line.Layer, Column: line.Column + 1}
			}
			if len(page) < size {
				return
			}
		}
	}
}

func scanSold(row pgx.CollectableRow) (fairdraw.SoldLine, error) {
	var line fairdraw.SoldLine
	var nonce []byte
	var userID string
	err := row.Scan(&line.Layer, &line.Column, &line.PurchaseID, &nonce, &userID)
	if nonce != nil {
		line.Holder = fairdraw.Holder(nonce, userID)
	}
	return line, err
}
