package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
)

// byIndex are the session settings that make Postgres read tables by index.
//
// Every statement here has an index for its rows. Postgres would still scan or hash a whole table that it
// assumes to be small, from old statistics or without any. A table without a suitable index is still scanned.
// Its cost would trigger JIT compilation, which takes longer than any statement here.
var byIndex = map[string]string{"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_material": "off", "jit": "off"}

// AllowScans reverts this for the rest of a transaction that reads whole tables.
func AllowScans(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SELECT set_config(name, 'on', true) FROM unnest($1::text[]) AS name`, slices.Collect(maps.Keys(byIndex)))
	return fault.At(err, "postgres.AllowScans")
}

// planTTL is how long a session caches plans. A plan fits the table sizes at the time of planning, and Postgres
// replans only after ANALYZE: on a new database after a minute at the earliest. What a table grows by in five
// seconds is read in milliseconds. Planning all statements of a session takes as long.
const planTTL = 5 * time.Second

// discardTimeout bounds DISCARD PLANS.
const discardTimeout = time.Second

// plannedAt is the key of the time of a session's oldest plans in the custom data of its connection.
const plannedAt = "triprize.plannedAt"

// planAnew returns a hook for connections that are about to be used. It discards a session's plans after ttl.
func planAnew(ttl time.Duration) func(context.Context, *pgx.Conn) (usable bool, err error) {
	return func(ctx context.Context, conn *pgx.Conn) (usable bool, err error) {
		of := conn.PgConn().CustomData()
		if at, ok := of[plannedAt].(time.Time); ok && time.Since(at) < ttl {
			return true, nil
		} else if ok {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout) // a caller that leaves must not break the connection
			defer cancel()
			if _, err := conn.Exec(ctx, `DISCARD PLANS`, pgx.QueryExecModeSimpleProtocol); err != nil {
				return false, nil // the pool tries another connection
			}
		}
		of[plannedAt] = time.Now()
		return true, nil
	}
}
