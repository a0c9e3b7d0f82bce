package export_test

import (
	"context"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/books/export"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/servers"
)

// An export on a replica has all that was committed before it, and one query that the replica cancels is repeated.
func TestAnExportReadsOnAReplicaWhatThePrimaryHasCommitted(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(t.Context(), devstack.Options{Unsafe: true, Postgres: devstack.PostgresStandby})
	servers.NoError(t, err)
	t.Cleanup(func() { _ = stack.Stop() })
	settings := servers.Patient(servers.Defaults(t))
	settings.Postgres.URL, settings.Postgres.ReadURL = stack.Postgres.URL("postgres"), stack.Standby.URL("postgres")
	primary := servers.Pool(t, settings)
	servers.NoError(t, schema.Migrate(t.Context(), primary))
	reader, err := postgres.NewReader(t.Context(), settings.Postgres, primary, "test")
	servers.NoError(t, err)
	t.Cleanup(reader.Close)
	p := export.Parameters{Kind: "purchases", From: "2026-11-01", To: "2026-12-01"}
	sell := func() {
		t.Helper()
		insertSold(t, primary, "shop", time.Date(2026, 11, 7, 0, 0, 0, 0, time.UTC))
	}
	for want := 1; want <= 20; want++ { // each at once
		sell()
		db, err := reader.Now(t.Context())
		servers.NoError(t, err)
		if !servers.Value[bool](t, db, `SELECT pg_is_in_recovery()`) {
			t.Fatal("the primary is read")
		}
		if _, rows := table(t, ',', written(t, db, p)); len(rows) != want {
			t.Fatalf("%d rows, want %d", len(rows), want)
		}
	}

	replica, err := reader.Now(t.Context())
	servers.NoError(t, err)
	operator := settings
	operator.Postgres.URL = settings.Postgres.ReadURL
	standby := servers.Pool(t, operator)
	servers.Exec(t, standby, `SELECT pg_wal_replay_pause()`)
	sell()
	behind, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := reader.Now(behind); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("of a replica that is behind: %v", err)
	}
	servers.Exec(t, standby, `SELECT pg_wal_replay_resume()`)

	// A query that takes long, until it is cancelled, is in the way of a lock that the replica has to replay.
	servers.Exec(t, standby, `ALTER SYSTEM SET max_standby_streaming_delay = 0`)
	servers.Exec(t, standby, `SELECT pg_reload_conf()`)
	servers.Exec(t, primary, `CREATE OR REPLACE FUNCTION position_label(label text, first_number integer, col integer) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_sleep(20) FROM pg_stat_database_conflicts WHERE datname = current_database() AND confl_lock = 0; RETURN col; END $$`)
	servers.Exec(t, primary, `ALTER TABLE layers DROP CONSTRAINT layers_campaign_id_fkey`)
	servers.Exec(t, primary, `INSERT INTO layers (campaign_id, layer, positions, price, first_number) SELECT campaign_id, 1, 1, 100, 1 FROM purchases`)
	servers.Exec(t, primary, `INSERT INTO purchase_items SELECT id, 1, 1, 100 FROM purchases LIMIT 3`)
	_, err = reader.Now(t.Context())
	servers.NoError(t, err)
	got := make(chan []byte, 1)
	go func() { got <- written(t, replica, p) }()
	servers.Eventually(t, "the query runs", func() bool {
		return servers.Value[bool](t, standby, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid <> pg_backend_pid())`)
	})
	servers.Exec(t, primary, `DO $$ BEGIN LOCK TABLE purchases IN ACCESS EXCLUSIVE MODE; END $$`)
	if _, rows := table(t, ',', <-got); len(rows) != 21 {
		t.Errorf("%d rows, want 21", len(rows))
	}
	if n := servers.Value[int](t, standby, `SELECT confl_lock FROM pg_stat_database_conflicts WHERE datname = current_database()`); n == 0 {
		t.Error("no query was cancelled")
	}
	servers.Exec(t, standby, `SELECT pg_promote()`) // it would have sales of its own, and not those of the primary
	if db, err := reader.Now(t.Context()); err != nil || db != postgres.DB(primary) {
		t.Errorf("after it was promoted: %v, %v", db, err)
	}
}
