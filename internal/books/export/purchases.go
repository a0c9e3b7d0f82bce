package export

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/money"
	"triprize/internal/purchase"
)

// purchaseRow is a purchase that was created in the period.
type purchaseRow struct {
	window

	ID                   uuid.UUID         `json:"id"` // of its job, too
	CreatedAt            time.Time         `json:"created_at"`
	CompletedAt          *time.Time        `json:"completed_at"`
	CapturedAt           *time.Time        `json:"captured_at"` // by card: when the provider had the money
	CancelledAt          *time.Time        `json:"cancelled_at"`
	State                string            `json:"state"`
	Failure              *string           `json:"failure"`
	Client               string            `json:"client"`
	CampaignID           uuid.UUID         `json:"campaign_id"`
	UserID               string            `json:"user_id"`
	PaymentMethod        string            `json:"payment_method"`
	PaymentReference     *string           `json:"payment_reference"` // by card: the provider's id
	Currency             string            `json:"currency"`
	AmountMinor          int64             `json:"amount_minor"`
	Amount               decimal           `json:"amount"`
	AmountCancelledMinor int64             `json:"amount_cancelled_minor"` // of its parts
	AmountCancelled      decimal           `json:"amount_cancelled"`
	AmountRefundedMinor  int64             `json:"amount_refunded_minor"`
	AmountRefunded       decimal           `json:"amount_refunded"`
	AmountDisputedMinor  int64             `json:"amount_disputed_minor"` // of disputes that are lost
	AmountDisputed       decimal           `json:"amount_disputed"`
	FeesMinor            *int64            `json:"fees_minor"` // of the provider, in its balance
	Fees                 decimal           `json:"fees" in:"FeeCurrency"`
	FeeCurrency          *string           `json:"fee_currency"`
	ExchangeRate         *string           `json:"exchange_rate"` // of its charge, into fee_currency
	DisputedAt           *time.Time        `json:"disputed_at"`
	DisputeStatus        *string           `json:"dispute_status"`
	CancelledBy          *string           `json:"cancelled_by"`
	CancelReason         *string           `json:"cancel_reason"`
	RefundStates         []string          `json:"refund_states"`
	Parts                []part            `json:"parts"` // that were cancelled while others were left
	Quantity             int               `json:"quantity"`
	Positions            []string          `json:"positions"` // L3C1: no spreadsheet takes it for a date or a number
	PositionNumbers      []int             `json:"position_numbers"`
	PositionLabels       labels            `json:"position_labels"`
	Metadata             map[string]string `json:"metadata"`

	Partial []purchase.PartialCancellation `json:"-"`
}

// part is a partial cancellation.
type part struct {
	At          time.Time `json:"at"`
	AmountMinor int64     `json:"amount_minor"`
	Amount      decimal   `json:"amount"`
	By          string    `json:"by"`
	Reason      string    `json:"reason,omitempty"`
	Positions   []string  `json:"positions"`
}

func (r *purchaseRow) finish(zone *time.Location) {
	r.Parts = make([]part, len(r.Partial))
	for i, p := range r.Partial {
		r.Parts[i] = part{At: p.At.In(zone), AmountMinor: int64(p.Amount), Amount: decimal(money.Currency(r.Currency).Decimal(p.Amount)), By: p.By, Reason: p.Reason}
		for _, item := range p.Items {
			r.Parts[i].Positions = append(r.Parts[i].Positions, fmt.Sprintf("L%dC%d", item.Layer, item.Column))
		}
	}
}

var purchasesSQL = windowed(`purchases`, 500, ids, created+` AND ($5::text IS NULL OR p.client = $5)`, `
	p.id, p.created_at, p.completed_at, p.cancelled_at, p.state, p.failure, p.client, p.campaign_id, p.user_id, p.payment_method,
	coalesce(y.intent_id, p.payment_reference) AS payment_reference, p.currency, p.amount AS amount_minor, coalesce(y.amount_disputed, 0) AS amount_disputed_minor,
	y.disputed_at, y.dispute ->> 'status' AS dispute_status, p.cancelled_by, p.cancel_reason, p.metadata, coalesce(p.partial_cancellations, '[]') AS partial,
	(SELECT min(at) FROM payment_steps WHERE purchase_id = y.purchase_id AND event = 'captured') AS captured_at,
	(SELECT coalesce(sum((part ->> 'amount')::bigint), 0)::bigint FROM jsonb_array_elements(p.partial_cancellations) AS part) AS amount_cancelled_minor,
	r.refund_states, r.amount_refunded_minor, b.fees_minor, b.fee_currency, b.exchange_rate, i.*`, `
	LEFT JOIN LATERAL (SELECT t.*, CASE WHEN t.disputed_at IS NOT NULL THEN overlap_of(t) END AS overlap FROM payments t WHERE t.purchase_id = p.id AND p.payment_method = 'card' OFFSET 0) y ON true
	CROSS JOIN LATERAL (
		SELECT coalesce(array_agg(state ORDER BY id), '{}') AS refund_states, (coalesce(sum(amount) FILTER (WHERE state IN ('succeeded', 'resolved')), 0) - coalesce(y.overlap, 0))::bigint AS amount_refunded_minor
		FROM refunds WHERE purchase_id = p.id AND (p.payment_method = 'card' OR p.state <> 'completed' OR p.partial_cancellations IS NOT NULL)) r
	CROSS JOIN LATERAL (
		SELECT CASE WHEN min(currency) = max(currency) THEN sum(fee)::bigint END AS fees_minor, CASE WHEN min(currency) = max(currency) THEN min(currency) END AS fee_currency, (min(exchange_rate) FILTER (WHERE reporting_category = 'charge'))::text AS exchange_rate
		FROM balance_transactions WHERE intent_id = y.intent_id AND reporting_category NOT IN ('dispute', 'dispute_reversal')) b
	CROSS JOIN LATERAL (
		SELECT count(*) AS quantity, coalesce(array_agg(format('L%sC%s', n.layer, n.col) ORDER BY n.layer, n.col), '{}') AS positions,
		       coalesce(array_agg(position_number(l.first_number, n.col) ORDER BY n.layer, n.col), '{}') AS position_numbers,
		       coalesce(array_agg(position_label(l.label, l.first_number, n.col) ORDER BY n.layer, n.col), '{}') AS position_labels
		FROM purchase_items n CROSS JOIN LATERAL (SELECT * FROM layers WHERE campaign_id = p.campaign_id AND layer = n.layer OFFSET 0) l
		WHERE n.purchase_id = p.id) i`)

func (e *Export) purchases(ctx context.Context) iter.Seq2[any, error] {
	return inPeriod[purchaseRow](ctx, e, purchasesSQL)
}
