package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
)

// Assumed is what the programs assume of a server and a database, and cannot set: every process, migrate and doctor ask.
// What a session decides is set by [Servers.Open]. A database's own collation compares for equality byte by byte, and
// sorts and locks are made in one place, so any does; that its version has not changed is doctor's question. A SQL
// returns one row: whether it is so, and what there is.
var Assumed = []struct{ Name, Do, SQL string }{
	{"postgres", "use PostgreSQL 15 or newer", `SELECT current_setting('server_version_num')::int >= 150000, 'version ' || current_setting('server_version')`},
	{"encoding of the database", "make another, CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and restore a dump into it",
		`SELECT pg_encoding_to_char(encoding) = 'UTF8', pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()`},
	{"triggers", "ALTER ROLE … RESET session_replication_role: triggers and foreign keys are off",
		`SELECT setting = 'origin', 'session_replication_role ' || setting FROM pg_settings WHERE name = 'session_replication_role'`},
}

// CheckServer returns an error if something that is Assumed is not so.
func CheckServer(ctx context.Context, pool *pgxpool.Pool) error {
	for _, a := range Assumed {
		var holds bool
		var found string
		if err := pool.QueryRow(ctx, a.SQL).Scan(&holds, &found); err != nil {
			return fault.At(err, "postgres.CheckServer")
		}
		if !holds {
			return fmt.Errorf("setting postgres.url (TRIPRIZE_POSTGRES_URL): %s: %s; %s", a.Name, found, a.Do)
		}
	}
	return nil
}
