package balance

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
)

// ofPayments are the categories that are about a payment of somebody.
var ofPayments = []string{
	payprovider.CategoryCharge, payprovider.CategoryChargeFailure, payprovider.CategoryPartialCaptureReversal, payprovider.CategoryRefund,
	payprovider.CategoryRefundFailure, payprovider.CategoryDispute, payprovider.CategoryDisputeReversal,
}

// Store stores the transactions of a day that were made before until, and since the span
// before, in one transaction with the note that they are. Those about payments of others
// are counted only. After it the day is listed until then. Give the charges before what
// follows from them.
func Store(ctx context.Context, db postgres.Beginner, d *Day, until time.Time, lease time.Duration, all []payprovider.BalanceTransaction) (stored int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if stored, err = insert(ctx, tx, inStore, all); err != nil {
			return err
		}
		return listed(ctx, tx, *d, until, len(all)-stored, lease)
	})
	if err != nil {
		return 0, fmt.Errorf("balance.Store: %w", err)
	}
	d.Until = until
	return stored, nil
}

// columnsOf are transactions as arrays, for unnest.
type columnsOf struct {
	id, kind, category, currency           []string
	known                                  []bool
	amount, fee, net                       []int64
	rate                                   []*string
	created, available                     []time.Time
	source, intent, sourceCurrency, status []*string
	sourceAmount                           []*int64
	purchase, installation                 []*uuid.UUID
}

func arraysOf(all []payprovider.BalanceTransaction) (c columnsOf) {
	for _, t := range all {
		s := t.Source
		c.id, c.kind, c.category, c.currency = append(c.id, t.ID), append(c.kind, t.Type), append(c.category, t.Category), append(c.currency, t.Currency)
		c.known, c.rate = append(c.known, t.Known), append(c.rate, t.ExchangeRate)
		c.amount, c.fee, c.net = append(c.amount, int64(t.Amount)), append(c.fee, int64(t.Fee)), append(c.net, int64(t.Net))
		c.created, c.available = append(c.created, t.CreatedAt), append(c.available, t.AvailableOn)
		c.source, c.intent = append(c.source, postgres.Nullable(s.ID)), append(c.intent, postgres.Nullable(s.IntentID))
		c.sourceCurrency, c.status = append(c.sourceCurrency, postgres.Nullable(s.Currency)), append(c.status, postgres.Nullable(s.Status))
		var amount *int64
		if s.Currency != "" {
			minor := int64(s.Amount)
			amount = &minor
		}
		c.sourceAmount = append(c.sourceAmount, amount)
		c.purchase = append(c.purchase, idIn(s.Metadata, "purchase_id"))
		c.installation = append(c.installation, idIn(s.Metadata, payprovider.InstallationKey))
	}
	return c
}

func idIn(metadata map[string]string, key string) *uuid.UUID {
	id, err := uuid.Parse(metadata[key])
	if err != nil {
		return nil
	}
	return &id
}

// insert stores transactions that are ours or the account's. One that is stored already
// counts, and gets the status that its source has now. A refund and a dispute have no
// metadata of ours when people have made them: their intent tells.
func insert(ctx context.Context, db postgres.DB, into table, all []payprovider.BalanceTransaction) (stored int, err error) {
	c := arraysOf(all)
	tag, err := db.Exec(ctx, into.of(`
		WITH told AS MATERIALIZED (
			SELECT t.*, t.category <> ALL($18) OR coalesce(t.installation = (SELECT id FROM installation), false)
			       OR EXISTS (SELECT FROM payments WHERE intent_id = t.intent_id) OR EXISTS (SELECT FROM refunds WHERE provider_id = t.source_id)
			       OR EXISTS (SELECT FROM balance_transactions WHERE intent_id = t.intent_id) AS ours
			FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[], $9::text[], $10::timestamptz[],
			            $11::timestamptz[], $12::text[], $13::text[], $14::uuid[], $15::bigint[], $16::text[], $17::text[], $19::uuid[])
			     AS t (id, type, category, known, amount, currency, fee, net, rate, created_at, available_on, source_id, intent_id, purchase_id, source_amount,
			           source_currency, source_status, installation)
		)
		INSERT INTO balance_transactions (id, day, type, reporting_category, known, amount, currency, fee, net, exchange_rate, created_at, available_on,
		                                  source_id, intent_id, purchase_id, source_amount, source_currency, source_status)
		SELECT id, (created_at AT TIME ZONE 'UTC')::date, type, category, known, amount, currency, fee, net, rate::numeric, created_at, available_on,
		       source_id, intent_id, purchase_id, source_amount, source_currency, source_status
		FROM told WHERE ours OR intent_id IN (SELECT o.intent_id FROM told o WHERE o.ours)
		ON CONFLICT (id) DO UPDATE SET source_status = excluded.source_status, known = excluded.known`),
		c.id, c.kind, c.category, c.known, c.amount, c.currency, c.fee, c.net, c.rate, c.created, c.available, c.source, c.intent, c.purchase,
		c.sourceAmount, c.sourceCurrency, c.status, ofPayments, c.installation)
	return int(tag.RowsAffected()), err
}

// DeleteOld deletes up to limit transactions, days and differences that are older than keep,
// from a moment on (nil: from the beginning). It returns where to go on. The newest day
// stays, and differences that stand.
func DeleteOld(ctx context.Context, db postgres.DB, keep time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	err = db.QueryRow(ctx, `
		WITH old AS MATERIALIZED (
			SELECT id, day FROM balance_transactions
			WHERE day >= coalesce(($2::timestamptz AT TIME ZONE 'UTC')::date, '-infinity'::date)
			  AND day < ((statement_timestamp() - $3 * interval '1 second') AT TIME ZONE 'UTC')::date
			ORDER BY day LIMIT $1 FOR UPDATE SKIP LOCKED
		), deleted AS (
			DELETE FROM balance_transactions WHERE id = ANY(ARRAY(SELECT id FROM old))
		), days AS (
			DELETE FROM reconciled_days
			WHERE day < ((statement_timestamp() - $3 * interval '1 second') AT TIME ZONE 'UTC')::date AND done_at IS NOT NULL
			  AND day < (SELECT max(day) FROM reconciled_days) AND NOT EXISTS (SELECT FROM old)
		), differences AS (
			DELETE FROM payment_differences WHERE id = ANY(ARRAY(
				SELECT id FROM payment_differences
				WHERE found_at < statement_timestamp() - $3 * interval '1 second' AND (closed_at IS NOT NULL OR explained_at IS NOT NULL)
				ORDER BY found_at LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id
		)
		SELECT greatest((SELECT count(*) FROM old), (SELECT count(*) FROM differences)),
		       coalesce((SELECT max(day)::timestamp AT TIME ZONE 'UTC' FROM old), $2)`, limit, from, keep.Seconds()).Scan(&deleted, &next)
	if err != nil {
		return 0, from, fmt.Errorf("balance.DeleteOld: %w", err)
	}
	return deleted, next, nil
}
