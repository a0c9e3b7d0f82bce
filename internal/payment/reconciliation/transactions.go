package reconciliation

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

// ofPayments are the categories that are about payments. All others concern the account, such as fees and payouts.
const ofPayments = `('charge', 'charge_failure', 'partial_capture_reversal', 'refund', 'refund_failure', 'dispute', 'dispute_reversal')`

// idsIn are the ids of ours in the metadata of a source. Others may have anything there, such as
// text that Postgres refuses: it is left out.
func idsIn(metadata map[string]string) map[string]string {
	ids := make(map[string]string)
	for _, key := range []string{payprovider.PurchaseKey, payprovider.InstallationKey} {
		if id, err := uuid.Parse(metadata[key]); err == nil {
			ids[key] = id.String()
		}
	}
	return ids
}

// store stores the transactions of a day that were made before until, and since the span
// before, in one transaction with the note that they are. Those about payments of others
// are counted only. After it the day is listed until then. Give the charges before what
// follows from them.
func store(ctx context.Context, db postgres.Beginner, d *claimedDay, until time.Time, retention time.Duration, all []payprovider.BalanceTransaction) (stored, foreign int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if stored, foreign, err = insert(ctx, tx, inStore, all); err != nil {
			return err
		}
		return d.write(ctx, tx, d.Until, `listed_until = $4, lease_until = clock_timestamp() + $5 * interval '1 second'`,
			until, retention.Seconds()) // the day stays ours for the lease
	})
	if err != nil {
		return 0, 0, fault.At(err, "reconciliation.store")
	}
	d.Until = until
	return stored, foreign, nil
}

// insert stores transactions that are ours or the account's, and counts the others. One that is
// listed twice counts once. One that is stored already counts, and gets the status that its source has now. A refund and a dispute have no
// metadata of ours when people have made them: their intent shows it.
func insert(ctx context.Context, db postgres.DB, into table, all []payprovider.BalanceTransaction) (stored, foreign int, err error) {
	seen, once := make(map[string]bool, len(all)), make([]payprovider.BalanceTransaction, 0, len(all))
	for _, t := range all {
		if !seen[t.ID] {
			seen[t.ID] = true
			t.Source.Metadata = idsIn(t.Source.Metadata)
			once = append(once, t)
		}
	}
	tag, err := db.Exec(ctx, into.of(`
		WITH listed AS (
			SELECT t.*, nullif(t.source ->> 'id', '') AS source_id, nullif(t.source ->> 'intent', '') AS intent_id, (t.source -> 'metadata' ->> '`+payprovider.PurchaseKey+`')::uuid AS purchase_id,
			       (t.source -> 'metadata' ->> '`+payprovider.InstallationKey+`')::uuid AS installation, nullif(t.source ->> 'currency', '') AS source_currency, nullif(t.source ->> 'status', '') AS source_status
			FROM json_to_recordset($1::json) AS t (id text, type text, category text, known boolean, amount bigint, currency text, fee bigint, net bigint, exchange_rate numeric,
			                                       created timestamptz, available_on timestamptz, source json)
		), known AS MATERIALIZED (
			SELECT t.*, t.category NOT IN `+ofPayments+` OR coalesce(t.installation = (SELECT id FROM installation), false)
			       OR EXISTS (SELECT FROM payments WHERE intent_id = t.intent_id) OR EXISTS (SELECT FROM refunds WHERE provider_id = t.source_id)
			       OR EXISTS (SELECT FROM balance_transactions WHERE intent_id = t.intent_id) AS ours
			FROM listed t
		)
		INSERT INTO balance_transactions (id, day, type, reporting_category, known, amount, currency, fee, net, exchange_rate, created_at, available_on,
		                                  source_id, intent_id, purchase_id, source_amount, source_currency, source_status)
		SELECT id, (created AT TIME ZONE 'UTC')::date, type, category, known, amount, currency, fee, net, exchange_rate, created, available_on,
		       source_id, intent_id, purchase_id, CASE WHEN source_currency IS NOT NULL THEN (source ->> 'amount')::bigint END, source_currency, source_status
		FROM known WHERE ours OR intent_id IN (SELECT o.intent_id FROM known o WHERE o.ours)
		ON CONFLICT (id) DO UPDATE SET source_status = excluded.source_status, known = excluded.known`), once)
	stored = int(tag.RowsAffected())
	return stored, len(once) - stored, err
}

// claimedDay is a day that this scheduler lists.
type claimedDay struct {
	Day     time.Time // its begin, in UTC
	Version int64
	Until   time.Time // what was made before it is stored
}

// end is when the day is over.
func (d claimedDay) end() time.Time { return d.Day.AddDate(0, 0, 1) }

// claimDay claims the oldest day that is not done: of those since the installation, and no
// older than retention, that have ended longer than closed ago. ok is false when there is
// none, or when another scheduler has it. A day whose scheduler has died is claimed
// again when its lease is over.
func claimDay(ctx context.Context, db postgres.DB, closed, retention, until time.Duration) (d claimedDay, ok bool, err error) {
	d, err = postgres.CollectOne(ctx, db, pgx.RowToStructByPos[claimedDay], `
		WITH span AS (
			SELECT greatest((created_at AT TIME ZONE 'UTC')::date, ((clock_timestamp() - $2 * interval '1 second') AT TIME ZONE 'UTC')::date) AS first,
			       ((clock_timestamp() - $1 * interval '1 second') AT TIME ZONE 'UTC')::date - 1 AS last
			FROM installation
		), next AS (
			SELECT coalesce((SELECT min(day) FROM reconciled_days WHERE done_at IS NULL),
			                greatest((SELECT max(day) + 1 FROM reconciled_days), first)) AS day, last FROM span
		)
		INSERT INTO reconciled_days AS d (day, lease_until, listed_until)
		SELECT day, clock_timestamp() + $3 * interval '1 second', day::timestamp AT TIME ZONE 'UTC' FROM next WHERE day <= last
		ON CONFLICT (day) DO UPDATE SET lease_until = excluded.lease_until, version = d.version + 1
		WHERE d.done_at IS NULL AND d.lease_until <= clock_timestamp()
		RETURNING d.day::timestamp AT TIME ZONE 'UTC', d.version, d.listed_until`, closed.Seconds(), retention.Seconds(), until.Seconds())
	ok, err = postgres.Found(err)
	d.Day, d.Until = d.Day.UTC(), d.Until.UTC()
	return d, ok, fault.At(err, "reconciliation.claimDay")
}

// release releases a day that is not done, so that it need not wait for its lease.
func release(ctx context.Context, db postgres.DB, d claimedDay) error {
	_, err := db.Exec(ctx, `UPDATE reconciled_days SET lease_until = clock_timestamp() WHERE day = $1::date AND version = $2 AND done_at IS NULL`, d.Day, d.Version)
	return fault.At(err, "reconciliation.release")
}

// write sets columns of a day that is listed until a moment. It fails with [lease.ErrFenced] when another scheduler has it.
func (d claimedDay) write(ctx context.Context, tx pgx.Tx, listed time.Time, set string, args ...any) error {
	tag, err := tx.Exec(ctx, `UPDATE reconciled_days SET `+set+` WHERE day = $1::date AND version = $2 AND done_at IS NULL AND listed_until = $3`,
		append([]any{d.Day, d.Version, listed}, args...)...)
	if err == nil && tag.RowsAffected() != 1 {
		err = lease.ErrFenced
	}
	return fault.At(err, "reconciliation.write(%s)", d.Day.Format(time.DateOnly))
}

// DeleteOld deletes up to limit transactions, days and discrepancies that are older than retention,
// from a moment on (nil: from the beginning). It returns the cursor. The newest day
// stays, and discrepancies that stand.
func DeleteOld(ctx context.Context, db postgres.DB, retention time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
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
		), discrepancies AS (
			DELETE FROM payment_discrepancies WHERE id = ANY(ARRAY(
				SELECT id FROM payment_discrepancies
				WHERE found_at < statement_timestamp() - $3 * interval '1 second' AND (closed_at IS NOT NULL OR explained_at IS NOT NULL)
				ORDER BY found_at LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id
		)
		SELECT greatest((SELECT count(*) FROM old), (SELECT count(*) FROM discrepancies)),
		       coalesce((SELECT max(day)::timestamp AT TIME ZONE 'UTC' FROM old), $2)`, limit, from, retention.Seconds()).Scan(&deleted, &next)
	return deleted, next, fault.At(err, "reconciliation.DeleteOld")
}
