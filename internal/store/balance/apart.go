package balance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
)

// table is where transactions are.
type table string

const (
	inStore table = "balance_transactions"
	apart   table = "pg_temp.compared_transactions"
)

// of returns a statement about the stored transactions as one about those of the table.
func (t table) of(sql string) string { return strings.ReplaceAll(sql, string(inStore), string(t)) }

// Apart compares transactions that are not stored with our books: they are in a temporary
// table of the session, which must be one connection.
type Apart struct{ db postgres.DB }

// OpenApart makes the table; close it.
func OpenApart(ctx context.Context, session postgres.DB) (Apart, error) {
	_, err := session.Exec(ctx, `CREATE TEMPORARY TABLE compared_transactions (LIKE balance_transactions INCLUDING ALL)`)
	return Apart{session}, fault.At(err, "balance.OpenApart")
}

// Close drops the table.
func (a Apart) Close(ctx context.Context) error {
	_, err := a.db.Exec(ctx, `DROP TABLE IF EXISTS pg_temp.compared_transactions`)
	return fault.At(err, "balance.Apart.Close")
}

// Add adds transactions that are ours, as Store does.
func (a Apart) Add(ctx context.Context, all []payprovider.BalanceTransaction) error {
	_, err := insert(ctx, a.db, apart, all)
	return fault.At(err, "balance.Apart.Add")
}

// Compare compares the transactions, and what our books say was moved in [from, to). What
// has no transaction may have one outside of the span: ask for it.
func (a Apart) Compare(ctx context.Context, from, to time.Time) ([]Difference, error) {
	there, err := postgres.Collect(ctx, a.db, scanFound, apart.of(compared)+`true`)
	if err != nil {
		return nil, fmt.Errorf("balance.Apart.Compare: %w", err)
	}
	here, err := postgres.Collect(ctx, a.db, scanFound, apart.of(missingOfDay), from, to)
	return append(there, here...), fault.At(err, "balance.Apart.Compare")
}

// Total is the money of one currency that the transactions are about, on both sides.
type Total struct {
	Currency      string       `json:"currency"`
	Charges       int          `json:"charges"` // of ours, at the provider
	CapturedHere  money.Amount `json:"captured_here"`
	CapturedThere money.Amount `json:"captured_there"`
	Refunds       int          `json:"refunds"`
	RefundedHere  money.Amount `json:"refunded_here"`
	RefundedThere money.Amount `json:"refunded_there"`
}

// Totals returns the sums of the transactions, by currency.
func (a Apart) Totals(ctx context.Context) ([]Total, error) {
	all, err := postgres.Collect(ctx, a.db, pgx.RowToStructByPos[Total], apart.of(`
		SELECT s.currency, count(*) FILTER (WHERE s.side = 'charge'), coalesce(sum(s.amount) FILTER (WHERE s.side = 'captured'), 0)::bigint,
		       coalesce(sum(s.amount) FILTER (WHERE s.side = 'charge'), 0)::bigint, count(*) FILTER (WHERE s.side = 'refund'),
		       coalesce(sum(s.amount) FILTER (WHERE s.side = 'refunded'), 0)::bigint, coalesce(sum(s.amount) FILTER (WHERE s.side = 'refund' AND s.back), 0)::bigint
		FROM (
			SELECT t.reporting_category AS side, t.source_currency AS currency, t.source_amount AS amount, t.source_status = 'succeeded' AS back FROM balance_transactions t
			UNION ALL
			SELECT 'captured', p.currency, p.received, NULL FROM balance_transactions t JOIN payments p ON p.intent_id = t.intent_id WHERE t.reporting_category = 'charge'
			UNION ALL
			SELECT 'refunded', r.currency, r.amount, NULL FROM balance_transactions t JOIN refunds r ON r.provider_id = t.source_id
			WHERE t.reporting_category = 'refund' AND r.state = 'succeeded') s
		WHERE s.currency IS NOT NULL AND s.side IN ('charge', 'captured', 'refund', 'refunded') GROUP BY s.currency ORDER BY s.currency`))
	return all, fault.At(err, "balance.Apart.Totals")
}

// UnderWay returns the payments and card refunds that were tried in [from, to) and are not
// final, or were woken since, as differences with what they are over here.
func UnderWay(ctx context.Context, db postgres.DB, from, to time.Time) ([]Difference, error) {
	all, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (d Difference, err error) {
		d = Difference{UnderWay: true, PurchaseID: new(uuid.UUID), HereAmount: new(int64), HereCurrency: new(string)}
		return d, row.Scan(&d.ObjectID, d.PurchaseID, d.HereAmount, d.HereCurrency, &d.Detail)
	}, `
		SELECT p.intent_id, p.purchase_id, p.amount, p.currency, 'the payment is ' || p.phase FROM payments p
		WHERE p.attempt_at >= $1 AND p.attempt_at < $2 AND p.intent_id IS NOT NULL AND `+paymentUnderWay+`
		UNION ALL
		SELECT coalesce(r.provider_id, ''), r.purchase_id, r.amount, r.currency, 'the refund is ' || r.state FROM refunds r
		WHERE r.method = 'card' AND coalesce(r.attempt_at, r.created_at) >= $1 AND coalesce(r.attempt_at, r.created_at) < $2 AND `+refundUnderWay, from, to)
	return all, fault.At(err, "balance.UnderWay")
}
