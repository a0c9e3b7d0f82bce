package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
)

// byIndex are the settings of every session: a table is read by an index, row by row.
//
// Every statement here names the rows that it reads, and has an index for them. Postgres
// scans or hashes a whole table instead if it takes the table for small: from statistics
// of a quiet time, or without any. A table without a fitting index is still scanned, at a
// cost for which Postgres would compile the plan. That takes longer than any statement here.
var byIndex = map[string]string{"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_material": "off", "jit": "off"}

// AllowScans undoes this for the rest of a transaction that reads whole tables.
func AllowScans(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SELECT set_config(name, 'on', true) FROM unnest($1::text[]) AS name`, slices.Collect(maps.Keys(byIndex)))
	return fault.At(err, "postgres.AllowScans")
}

// plansLast is how long a session keeps its plans. A plan fits the sizes that the tables
// had when it was made, and Postgres itself makes it anew only after ANALYZE: on a new
// database after a minute at the earliest. What a table gets in five seconds is read in
// milliseconds. Making all plans of a session takes as long.
const plansLast = 5 * time.Second

// discardTimeout bounds how long a caller waits for that.
const discardTimeout = time.Second

// plannedAt is the key of the time of a session's oldest plans, in what belongs to its connection.
const plannedAt = "triprize.plannedAt"

// planAnew returns a hook for connections that are about to be used. It has the session
// forget the plans that it has had for longer than last.
func planAnew(last time.Duration) func(context.Context, *pgx.Conn) (usable bool, err error) {
	return func(ctx context.Context, conn *pgx.Conn) (usable bool, err error) {
		of := conn.PgConn().CustomData()
		if at, ok := of[plannedAt].(time.Time); ok && time.Since(at) < last {
			return true, nil
		} else if ok {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout) // a caller that gives up closes no good connection
			defer cancel()
			if _, err := conn.Exec(ctx, `DISCARD PLANS`, pgx.QueryExecModeSimpleProtocol); err != nil {
				return false, nil // the pool tries another connection
			}
		}
		of[plannedAt] = time.Now()
		return true, nil
	}
}
