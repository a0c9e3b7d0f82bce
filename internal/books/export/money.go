package export

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/books"
)

// refundRow is a refund that was requested in the period, or made at the provider by others.
type refundRow struct {
	window

	ID            uuid.UUID  `json:"id"`
	PurchaseID    uuid.UUID  `json:"purchase_id"`
	CampaignID    uuid.UUID  `json:"campaign_id"`
	Client        *string    `json:"client"`
	UserID        string     `json:"user_id"`
	Method        string     `json:"method"`
	Reason        string     `json:"reason"`
	State         string     `json:"state"`
	PaidBack      *string    `json:"paid_back"` // wallet, card, out-of-band, cash (by the app) or by-hand; null: not yet
	Currency      string     `json:"currency"`
	AmountMinor   int64      `json:"amount_minor"`
	Amount        decimal    `json:"amount"`
	RequestedAt   time.Time  `json:"requested_at"`
	SucceededAt   *time.Time `json:"succeeded_at"`
	FailedAt      *time.Time `json:"failed_at"`
	ResolvedAt    *time.Time `json:"resolved_at"`
	ProviderID    *string    `json:"provider_id"`
	Failure       *string    `json:"failure"`
	RequestedBy   *string    `json:"requested_by"`
	ResolvedBy    *string    `json:"resolved_by"`
	ResolveReason *string    `json:"resolve_reason"`
}

// The refunds of a purchase are numbered in the order of its cancellations.
var refundsSQL = windowed(`refunds`, pageRows, ids, created+` AND ($5::text IS NULL OR p.client = $5)`, `
	p.id, p.purchase_id, p.campaign_id, p.client, p.user_id, p.method, p.reason, p.state, p.currency, p.amount AS amount_minor, p.created_at AS requested_at,
	CASE WHEN p.state = 'resolved' THEN CASE p.method WHEN 'external' THEN 'cash' ELSE 'by-hand' END
	     WHEN p.state = 'succeeded' THEN CASE p.reason WHEN 'out-of-band' THEN p.reason ELSE p.method END END AS paid_back,
	CASE WHEN p.finished_at IS DISTINCT FROM p.resolved_at THEN p.finished_at END AS succeeded_at, p.resolved_at, p.failed_at, p.provider_id, p.failure, p.resolved_by, p.resolve_reason,
	CASE WHEN p.reason IN ('cancelled', 'campaign-cancelled') THEN coalesce(o.partial_cancellations -> (p.number - 1) ->> 'by', o.cancelled_by) END AS requested_by`, `
	LEFT JOIN LATERAL (SELECT * FROM purchases WHERE id = p.purchase_id OFFSET 0) o ON true`)

func (e *Export) refunds(ctx context.Context) iter.Seq2[any, error] {
	return inPeriod[refundRow](ctx, e, refundsSQL)
}

// disputeRow is a dispute that was opened in the period.
type disputeRow struct {
	window

	ID          string     `json:"id"`
	PurchaseID  uuid.UUID  `json:"purchase_id"`
	CampaignID  uuid.UUID  `json:"campaign_id"`
	Client      string     `json:"client"`
	UserID      string     `json:"user_id"`
	IntentID    *string    `json:"payment_reference"`
	OpenedAt    time.Time  `json:"opened_at"`
	ChangedAt   time.Time  `json:"changed_at"`
	ClosedAt    *time.Time `json:"closed_at"`
	Status      string     `json:"status"`
	Reason      string     `json:"reason"`
	Lost        bool       `json:"lost"`
	Currency    string     `json:"currency"`
	AmountMinor int64      `json:"amount_minor"`
	Amount      decimal    `json:"amount"`
	FeeMinor    *int64     `json:"fee_minor"`
	Fee         decimal    `json:"fee" in:"FeeCurrency"`
	FeeCurrency *string    `json:"fee_currency"`
}

var disputesSQL = windowed(`disputes`, pageRows, `id > $1`, `(p.opened_at >= $2 AND p.opened_at < $3 AND ($4::text IS NULL OR o.client = $4))`, `
	p.id, p.purchase_id, o.campaign_id, o.client, o.user_id, y.intent_id, p.opened_at, p.changed_at, p.closed_at,
	p.status, p.reason, p.lost, p.currency, p.amount AS amount_minor, CASE WHEN p.fee_currency <> '' THEN p.fee END AS fee_minor, nullif(p.fee_currency, '') AS fee_currency`, `
	CROSS JOIN LATERAL (SELECT intent_id FROM payments WHERE purchase_id = p.purchase_id OFFSET 0) y
	CROSS JOIN LATERAL (SELECT campaign_id, client, user_id FROM purchases WHERE id = p.purchase_id OFFSET 0) o`)

func (e *Export) disputes(ctx context.Context) iter.Seq2[any, error] {
	return paged[disputeRow](ctx, e, "", e.Period.To, disputesSQL, e.Period.From, e.Period.To, e.Client)
}

// payoutRow is a balance transaction of a payout, or of one that was returned. A payout is negative: it leaves the balance.
type payoutRow struct {
	ID                string    `json:"id"`
	SourceID          *string   `json:"payout"`
	CreatedAt         time.Time `json:"created_at"`
	AvailableOn       time.Time `json:"available_on"`
	ReportingCategory string    `json:"category"`
	SourceStatus      *string   `json:"status"`
	Currency          string    `json:"currency"`
	AmountMinor       int64     `json:"amount_minor"`
	Amount            decimal   `json:"amount"`
	FeeMinor          int64     `json:"fee_minor"`
	Fee               decimal   `json:"fee"`
	NetMinor          int64     `json:"net_minor"`
	Net               decimal   `json:"net"`
}

// payouts reads the days (UTC) that touch the period, each in a statement.
func (e *Export) payouts(ctx context.Context) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for day := e.Period.From.UTC().AddDate(0, 0, -1); ; {
			next, err := books.Page(ctx, e.db, pgx.RowTo[*time.Time], `SELECT min(day) FROM balance_transactions WHERE day > $1 AND day <= $2`, day, e.Period.To.UTC())
			if err == nil && next[0] == nil {
				return
			}
			var page []*payoutRow
			if err == nil {
				day = *next[0]
				page, err = books.Page(ctx, e.db, pgx.RowToAddrOfStructByNameLax[payoutRow], `
					SELECT id, source_id, created_at, available_on, reporting_category, source_status, currency, amount AS amount_minor, fee AS fee_minor, net AS net_minor
					FROM balance_transactions
					WHERE day = $1 AND reporting_category IN ('payout', 'payout_reversal') AND created_at >= $2 AND created_at < $3 ORDER BY created_at, id`, day, e.Period.From, e.Period.To)
			}
			if err != nil {
				yield(nil, fmt.Errorf("export.payouts after %s: %w", day.Format(time.DateOnly), err))
				return
			}
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			e.share = shareOf(e.Period.From, day, e.Period.To)
		}
	}
}
