package balance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// ErrFenced means that another scheduler has the day now.
var ErrFenced = errors.New("balance: another scheduler has the day")

// Day is a claimed day.
type Day struct {
	Day     time.Time // its begin, in UTC
	Version int64
	Until   time.Time // what was made before it is stored
}

// End is when the day is over.
func (d Day) End() time.Time { return d.Day.AddDate(0, 0, 1) }

// ClaimDay claims the oldest day that is not done: of those since the installation, and no
// older than keep, that have ended longer than closed ago. ok is false when there is
// none, or when another scheduler has it. A day whose scheduler has died is claimed
// again when its lease is over.
func ClaimDay(ctx context.Context, db postgres.DB, closed, keep, lease time.Duration) (d Day, ok bool, err error) {
	d, err = postgres.CollectOne(ctx, db, pgx.RowToStructByPos[Day], `
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
		RETURNING d.day::timestamp AT TIME ZONE 'UTC', d.version, d.listed_until`, closed.Seconds(), keep.Seconds(), lease.Seconds())
	ok, err = postgres.Found(err)
	d.Day, d.Until = d.Day.UTC(), d.Until.UTC()
	return d, ok, fault.At(err, "balance.ClaimDay")
}

// GiveBack gives a day back that is not done, so that it need not wait for its lease.
func GiveBack(ctx context.Context, db postgres.DB, d Day) error {
	_, err := db.Exec(ctx, `UPDATE reconciled_days SET lease_until = clock_timestamp() WHERE day = $1::date AND version = $2 AND done_at IS NULL`, d.Day, d.Version)
	return fault.At(err, "balance.GiveBack")
}

// listed notes how far a day is listed, and how many transactions of others there were. The
// day stays ours for the lease.
func listed(ctx context.Context, tx pgx.Tx, d Day, until time.Time, others int, lease time.Duration) error {
	tag, err := tx.Exec(ctx, `
		UPDATE reconciled_days
		SET listed_until = $4, foreign_ones = foreign_ones + $5, lease_until = clock_timestamp() + $6 * interval '1 second'
		WHERE day = $1::date AND version = $2 AND done_at IS NULL AND listed_until = $3`, d.Day, d.Version, d.Until, until, others, lease.Seconds())
	if err == nil && tag.RowsAffected() != 1 {
		err = ErrFenced
	}
	return fault.At(err, "balance.listed")
}

// Done ends a day. Call it in the transaction that notes its differences.
func Done(ctx context.Context, tx pgx.Tx, d Day) error {
	tag, err := tx.Exec(ctx, `
		UPDATE reconciled_days SET done_at = clock_timestamp() WHERE day = $1::date AND version = $2 AND done_at IS NULL AND listed_until = $3`,
		d.Day, d.Version, d.End())
	if err == nil && tag.RowsAffected() != 1 {
		err = ErrFenced
	}
	return fault.At(err, "balance.Done")
}

// Sum is what a day has of a category, in one currency of payments and one of the balance.
type Sum struct {
	Day            time.Time `json:"-"`
	Category       string    `json:"reporting_category"`
	SourceCurrency *string   `json:"source_currency"` // null: of the account, and of no payment
	SourceAmount   int64     `json:"source_amount"`   // minor units of it
	Currency       string    `json:"currency"`
	Count          int64     `json:"count"`
	Amount         int64     `json:"amount"` // minor units of currency
	Fee            int64     `json:"fee"`
	Net            int64     `json:"net"`
}

// Reconciled is a day of the report.
type Reconciled struct {
	Day     time.Time
	DoneAt  *time.Time
	Foreign int64 // transactions of others
}

// Report returns the days of [from, to) in their order, and their sums.
func Report(ctx context.Context, db postgres.DB, from, to time.Time) (days []Reconciled, sums []Sum, err error) {
	days, err = postgres.Collect(ctx, db, pgx.RowToStructByPos[Reconciled], `
		SELECT day::timestamp AT TIME ZONE 'UTC', done_at, foreign_ones FROM reconciled_days WHERE day >= $1::date AND day < $2::date ORDER BY day`, from, to)
	if err != nil {
		return nil, nil, fmt.Errorf("balance.Report: %w", err)
	}
	sums, err = postgres.Collect(ctx, db, pgx.RowToStructByPos[Sum], `
		SELECT day::timestamp AT TIME ZONE 'UTC', reporting_category, source_currency, coalesce(sum(source_amount), 0)::bigint, currency, count(*),
		       sum(amount)::bigint, sum(fee)::bigint, sum(net)::bigint
		FROM balance_transactions WHERE day >= $1::date AND day < $2::date
		GROUP BY 1, 2, 3, 5 ORDER BY 1, 2, 3, 5`, from, to)
	return days, sums, fault.At(err, "balance.Report")
}
