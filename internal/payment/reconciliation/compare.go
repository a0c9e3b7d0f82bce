package reconciliation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
)

// What is under way: a payment p and a card refund r that are not final, or were woken since.
const (
	paymentUnderWay = `(p.finished_at IS NULL OR p.phase = 'cancelled' AND p.due_at IS NOT NULL)`
	refundUnderWay  = `(r.state IN ('open', 'pending', 'requires_action') OR r.due_at IS NOT NULL)`
)

// compared are the discrepancies that transactions t show, by their sources, to the smallest
// unit of the source's own currency. A condition on t follows.
//
// A charge must be captured here over the same money, for the same purchase. One of a payment
// that an operator has called unpaid, or paid out of band, may be refunded there in whole. A refund must be on our
// books, of the same purchase, made by us or out of band, and have come as far here; one of a payment that
// received nothing here only released it, and one that has failed, then or later, has given
// nothing back. One that was resolved by hand and has succeeded there differs until the provider's list
// is recorded: then it is out of band. A dispute must be on record. The last column says whether the
// payment or refund is under way here, over the same money: later the books may agree.
const compared = `
	SELECT v.kind, v.object_id, t.id, coalesce(p.purchase_id, r.purchase_id, t.purchase_id), v.here_amount, v.here_currency,
	       coalesce(t.source_amount, t.amount), coalesce(t.source_currency, t.currency), v.detail,
	       coalesce(CASE
	           WHEN t.reporting_category = 'charge' THEN ` + paymentUnderWay + ` AND (t.source_amount, t.source_currency, t.purchase_id) = (p.amount, p.currency, p.purchase_id)
	           WHEN t.reporting_category NOT IN ('refund', 'refund_failure') THEN false
	           WHEN r.id IS NOT NULL THEN ` + refundUnderWay + ` AND (t.source_amount, t.source_currency) = (r.amount, r.currency)
	           ELSE p.due_at IS NOT NULL OR EXISTS (SELECT FROM refunds WHERE purchase_id = coalesce(p.purchase_id, t.purchase_id) AND method = 'card' AND state = 'open') END, false)
	FROM balance_transactions t
	LEFT JOIN LATERAL (SELECT * FROM payments WHERE intent_id = t.intent_id) p ON true
	LEFT JOIN LATERAL (SELECT * FROM refunds WHERE provider_id = t.source_id) r ON true
	CROSS JOIN LATERAL (
		SELECT EXISTS (SELECT FROM balance_transactions WHERE source_id = t.source_id AND reporting_category = 'refund_failure') AS failed) f
	CROSS JOIN LATERAL (
		SELECT 'unknown-category' AS kind, t.reporting_category AS object_id, NULL::bigint AS here_amount, NULL::text AS here_currency,
		       format('a transaction of type %s, in a category that this release does not know', t.type) AS detail
		WHERE NOT t.known
		UNION ALL
		SELECT 'unknown-here', coalesce(t.intent_id, t.source_id, t.id), NULL, NULL, 'captured at the provider, and no payment here has this intent'
		WHERE t.reporting_category = 'charge' AND p.purchase_id IS NULL
		UNION ALL
		SELECT 'differs', t.intent_id, p.received, p.currency, format('captured at the provider, and %s here with another amount or currency', p.phase)
		WHERE t.reporting_category = 'charge' AND (t.source_amount, t.source_currency) IS DISTINCT FROM (p.received, p.currency) AND p.purchase_id IS NOT NULL
		  AND NOT (p.received = 0 AND p.resolved_as IS NOT NULL AND t.source_amount = (
			SELECT coalesce(sum(b.source_amount), 0) FROM balance_transactions b
			WHERE b.intent_id = t.intent_id AND b.reporting_category = 'refund' AND b.source_currency = t.source_currency AND b.source_status = 'succeeded'
			  AND NOT EXISTS (SELECT FROM balance_transactions WHERE source_id = b.source_id AND reporting_category = 'refund_failure')))
		UNION ALL
		SELECT 'differs', t.intent_id, p.received, p.currency, format('captured at the provider for the purchase %s', t.purchase_id)
		WHERE t.reporting_category = 'charge' AND (t.source_amount, t.source_currency) = (p.received, p.currency) AND t.purchase_id <> p.purchase_id
		UNION ALL
		SELECT 'differs', t.intent_id, p.received, p.currency, format('%s: the provider has not the whole amount any more', t.reporting_category)
		WHERE t.reporting_category IN ('charge_failure', 'partial_capture_reversal') AND p.received > 0
		UNION ALL
		SELECT 'unknown-here', t.source_id, NULL, NULL, format('refunded at the provider (%s), and no refund here has its id', t.source_status)
		WHERE t.reporting_category = 'refund' AND r.id IS NULL AND coalesce(t.source_status, '') NOT IN ('failed', 'canceled')
		  AND NOT f.failed AND NOT coalesce(p.received = 0, false)
		UNION ALL
		SELECT 'differs', t.source_id, r.amount, r.currency, 'refunded over another amount or currency than here'
		WHERE t.reporting_category = 'refund'
		  AND (t.source_amount, t.source_currency) IS DISTINCT FROM (r.amount, r.currency) AND r.id IS NOT NULL
		UNION ALL
		SELECT 'differs', t.source_id, r.amount, r.currency, format('refunded at the provider from the money of the purchase %s', p.purchase_id)
		WHERE t.reporting_category = 'refund' AND (t.source_amount, t.source_currency) = (r.amount, r.currency) AND p.purchase_id <> r.purchase_id
		UNION ALL
		SELECT 'differs', t.source_id, r.amount, r.currency, format('the refund is %s here, and %s at the provider', r.state, t.source_status)
		WHERE t.reporting_category = 'refund' AND (t.source_amount, t.source_currency) = (r.amount, r.currency)
		  AND (t.source_status = 'succeeded' AND r.state <> 'succeeded' AND NOT f.failed
		       OR t.source_status IN ('failed', 'canceled') AND r.state IN ('succeeded', 'pending', 'requires_action'))
		UNION ALL
		SELECT 'differs', t.source_id, r.amount, r.currency, format('the refund has failed at the provider, and is %s here', r.state)
		WHERE t.reporting_category = 'refund_failure' AND r.state IN ('succeeded', 'pending', 'requires_action')
		UNION ALL
		SELECT 'unknown-here', t.source_id, NULL, NULL, 'disputed at the provider, and not here'
		WHERE t.reporting_category IN ('dispute', 'dispute_reversal') AND NOT EXISTS (SELECT FROM disputes WHERE id = t.source_id)
	) v
	WHERE `

// missing are the intents and refunds with money here that have no transaction of theirs,
// whenever it was made, of payments and refunds that are given as a table each.
const missing = `
	SELECT 'unknown-there' AS kind, p.intent_id AS object_id, NULL::text, p.purchase_id, p.received, p.currency, NULL::bigint, NULL::text,
	       p.phase || ' here, and the provider''s balance has no charge of it', false
	FROM %s p
	WHERE p.received > 0 AND p.intent_id IS NOT NULL
	  AND NOT EXISTS (SELECT FROM balance_transactions WHERE intent_id = p.intent_id AND reporting_category = 'charge')
	UNION ALL
	SELECT 'unknown-there', r.provider_id, NULL, r.purchase_id, r.amount, r.currency, NULL, NULL,
	       'refunded here, and the provider''s balance has no refund of it', r.due_at IS NOT NULL
	FROM %s r
	WHERE r.method = 'card' AND r.state = 'succeeded' AND r.provider_id IS NOT NULL
	  AND NOT EXISTS (SELECT FROM balance_transactions WHERE source_id = r.provider_id AND reporting_category = 'refund')`

// The tables of missing: what has finished in a span, and what a discrepancy l is about. With
// OFFSET 0 it is checked up by its id, whatever the planner thinks of other indexes.
var (
	missingOfDay = fmt.Sprintf(missing,
		`(SELECT * FROM payments WHERE received > 0 AND finished_at >= $1 AND finished_at < $2)`,
		`(SELECT * FROM refunds WHERE method = 'card' AND state = 'succeeded' AND finished_at >= $1 AND finished_at < $2)`)
	missingStill = fmt.Sprintf(missing,
		`(SELECT * FROM payments WHERE intent_id = l.object_id OFFSET 0)`, `(SELECT * FROM refunds WHERE provider_id = l.object_id OFFSET 0)`)
)

// edge is how late a transaction may be made, by the provider's clock, after our books say
// that the money was moved.
const edge = time.Hour

// compare compares the transactions of a table for which where holds with our books, and what our books
// say was moved in [from, to). What has no transaction may have one elsewhere.
func compare(ctx context.Context, db postgres.DB, in table, from, to time.Time, where string, args ...any) ([]Discrepancy, error) {
	there, err := postgres.Collect(ctx, db, scanFound, in.of(compared)+where, args...)
	if err != nil {
		return nil, fmt.Errorf("reconciliation.compare: %w", err)
	}
	here, err := postgres.Collect(ctx, db, scanFound, in.of(missingOfDay), from, to)
	return append(there, here...), fault.At(err, "reconciliation.compare")
}

func scanFound(row pgx.CollectableRow) (d Discrepancy, err error) {
	err = row.Scan(&d.Kind, &d.ObjectID, &d.TransactionID, &d.PurchaseID, &d.HereAmount, &d.HereCurrency, &d.ThereAmount, &d.ThereCurrency, &d.Detail, &d.UnderWay)
	return d, err
}

// closeAgreed closes up to limit discrepancies after the given one (zero: from the start) that
// are none any more. It returns how many it has closed, and the last one that it has checked
// at, or zero when there are no more.
func closeAgreed(ctx context.Context, db postgres.DB, after uuid.UUID, limit int) (closed int, last uuid.UUID, err error) {
	var checked int
	var id *uuid.UUID
	err = db.QueryRow(ctx, `
		WITH checked AS MATERIALIZED (
			SELECT * FROM payment_discrepancies WHERE closed_at IS NULL AND ($1::uuid IS NULL OR id > $1) ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
		), over AS (
			UPDATE payment_discrepancies d SET closed_at = clock_timestamp()
			FROM checked l
			WHERE d.id = l.id AND CASE
				WHEN l.transaction_id IS NOT NULL THEN EXISTS (SELECT FROM balance_transactions WHERE id = l.transaction_id)
					AND NOT EXISTS (SELECT FROM (`+compared+`t.id = l.transaction_id) c WHERE c.kind = l.kind)
				WHEN l.kind = 'unknown-here' THEN EXISTS (SELECT FROM payments WHERE intent_id = l.object_id)
				WHEN l.kind = 'unknown-there' THEN NOT EXISTS (`+missingStill+`)
				ELSE EXISTS (SELECT FROM disputes p WHERE p.id = l.object_id AND (p.lost OR p.refundable)) END -- it was not known who has its money
			RETURNING d.id
		)
		SELECT (SELECT count(*) FROM over), (SELECT count(*) FROM checked), (SELECT id FROM checked ORDER BY id DESC LIMIT 1)`,
		postgres.Nullable(after), limit).Scan(&closed, &checked, &id)
	if err != nil {
		return 0, uuid.Nil, fmt.Errorf("reconciliation.closeAgreed: %w", err)
	}
	if checked == limit && id != nil {
		last = *id
	}
	return closed, last, nil
}

// table is where transactions are: those that are not stored are in a temporary table of the session, which
// must be one connection.
type table string

const (
	inStore table = "balance_transactions"
	apart   table = "pg_temp.compared_transactions"
)

// of returns a statement about the stored transactions as one about those of the table.
func (t table) of(sql string) string { return strings.ReplaceAll(sql, string(inStore), string(t)) }

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

// totals returns the sums of the transactions that are not stored, by currency.
func totals(ctx context.Context, session postgres.DB) ([]Total, error) {
	all, err := postgres.Collect(ctx, session, pgx.RowToStructByPos[Total], apart.of(`
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
	return all, fault.At(err, "reconciliation.totals")
}

// underWay returns the payments and card refunds that were tried in [from, to) and are not
// final, or were woken since, as discrepancies with what they are over here.
func underWay(ctx context.Context, db postgres.DB, from, to time.Time) ([]Discrepancy, error) {
	all, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (d Discrepancy, err error) {
		d = Discrepancy{UnderWay: true, PurchaseID: new(uuid.UUID), HereAmount: new(int64), HereCurrency: new(string)}
		return d, row.Scan(&d.ObjectID, d.PurchaseID, d.HereAmount, d.HereCurrency, &d.Detail)
	}, `
		SELECT p.intent_id, p.purchase_id, p.amount, p.currency, 'the payment is ' || p.phase FROM payments p
		WHERE p.attempt_at >= $1 AND p.attempt_at < $2 AND p.intent_id IS NOT NULL AND `+paymentUnderWay+`
		UNION ALL
		SELECT coalesce(r.provider_id, ''), r.purchase_id, r.amount, r.currency, 'the refund is ' || r.state FROM refunds r
		WHERE r.method = 'card' AND coalesce(r.attempt_at, r.created_at) >= $1 AND coalesce(r.attempt_at, r.created_at) < $2 AND `+refundUnderWay, from, to)
	return all, fault.At(err, "reconciliation.UnderWay")
}
