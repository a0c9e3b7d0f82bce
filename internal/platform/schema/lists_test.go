package schema_test

import (
	"testing"
	"time"

	"triprize/internal/testkit/servers"
)

// An index that is built beside sales waits for every transaction that is older. A dump of a
// large database is such a one, and takes longer than postgres.lock_timeout.
func TestIndexesOfListsAreBuiltAfterATransactionThatLastsLong(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	db := servers.Pool(t, settings)
	settings.Postgres.LockTimeout = 100 * time.Millisecond
	hasty := servers.Pool(t, settings)
	if err := downFrom(t, migrator(t, db), "00022"); err != nil {
		t.Fatal(err)
	}
	dump, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dump.Rollback(t.Context()) }()
	servers.Exec(t, dump, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	servers.Exec(t, dump, `SELECT count(*) FROM jobs`)
	m, done := migrator(t, hasty), make(chan error, 1)
	go func() { _, err := m.Up(t.Context()); done <- err }()
	for late := false; !late; { // until it has waited longer than it may wait for other locks
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		if err := db.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'CREATE INDEX CONCURRENTLY%'
			AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '300 milliseconds')`).Scan(&late); err != nil {
			t.Fatal(err)
		}
	}
	if err := dump.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
