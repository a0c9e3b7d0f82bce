package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// expect checks how an error is classified, bare and wrapped, and that it is
// the error the test means. state is empty for an error that has none.
func expect(t *testing.T, err error, state string, transient bool) {
	t.Helper()
	if err == nil {
		t.Fatal("no error: the test does not test")
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code != state || !ok && state != "" {
		t.Fatalf("got %v, want %s: the test does not test", err, state)
	}
	for _, e := range []error{err, fmt.Errorf("sale.Sell: %w", err), errors.Join(errors.New("rollback"), err)} {
		if postgres.IsTransient(e) != transient {
			t.Errorf("%v: transient %v", e, !transient)
		}
	}
}

// open returns a pool with changed settings on a fresh database, which has a
// table marks with the rows 1 and 2, and another pool in which nothing runs out.
func open(t *testing.T, change func(*config.Postgres)) (changed, other *pgxpool.Pool) {
	t.Helper()
	settings := servers.Settings(t)
	normal := settings.Postgres
	patient(&settings.Postgres)
	other = servers.Pool(t, settings)
	settings.Postgres = normal
	_, err := other.Exec(t.Context(), `
		CREATE TABLE marks (n int CONSTRAINT marks_key PRIMARY KEY, note text CHECK (note <> ''));
		INSERT INTO marks VALUES (1, 'a'), (2, 'b')`)
	if err != nil {
		t.Fatal(err)
	}
	change(&settings.Postgres)
	return servers.Pool(t, settings), other
}

// patient lets no statement, no wait for a lock and no transaction run out.
func patient(p *config.Postgres) {
	p.LockTimeout, p.StatementTimeout, p.IdleInTransactionTimeout = time.Hour, time.Hour, time.Hour
}

func begin(t *testing.T, db *pgxpool.Pool, sql string) pgx.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	servers.Exec(t, tx, sql)
	return tx
}

func TestAFaultOfTheStatementIsNotTransient(t *testing.T) {
	t.Parallel()
	db, _ := open(t, patient)
	for sql, state := range map[string]string{
		`INSERT INTO marks VALUES (1, 'c')`:    "23505",
		`INSERT INTO marks VALUES (3, '')`:     "23514",
		`INSERT INTO marks VALUES (NULL, 'c')`: "23502",
		`SELECT 1 / 0`:                         "22012",
		`SELECT * FROM nowhere`:                "42P01",
		`SELEKT`:                               "42601",
	} {
		_, err := db.Exec(t.Context(), sql)
		expect(t, err, state, false)
	}
	if postgres.IsTransient(nil) {
		t.Error("no error is a fault")
	}
	if postgres.IsTransient(pgx.ErrNoRows) || postgres.IsTransient(errors.New("57014 in words only")) {
		t.Error("an error that has nothing to do with it is")
	}
}

func TestALockThatIsNotGivenInTimeIsTransient(t *testing.T) {
	t.Parallel()
	db, other := open(t, func(p *config.Postgres) { p.LockTimeout = 100 * time.Millisecond })
	begin(t, other, `UPDATE marks SET note = 'c' WHERE n = 1`)
	_, err := db.Exec(t.Context(), `UPDATE marks SET note = 'd' WHERE n = 1`)
	expect(t, err, "55P03", true)
	_, err = db.Exec(t.Context(), `SELECT FROM marks FOR UPDATE NOWAIT`)
	expect(t, err, "55P03", true)
}

func TestAStatementThatTakesTooLongIsTransient(t *testing.T) {
	t.Parallel()
	db, _ := open(t, func(p *config.Postgres) { p.StatementTimeout = 100 * time.Millisecond })
	_, err := db.Exec(t.Context(), `SELECT pg_sleep(3600)`)
	expect(t, err, "57014", true)
}

func TestADeadlockIsTransient(t *testing.T) {
	t.Parallel()
	db, other := open(t, patient)
	a := begin(t, db, `UPDATE marks SET note = 'a' WHERE n = 1`)
	b := begin(t, db, `UPDATE marks SET note = 'b' WHERE n = 2`)
	var wg sync.WaitGroup
	var errA, errB error
	wg.Go(func() {
		_, errA = a.Exec(context.Background(), `UPDATE marks SET note = 'a' WHERE n = 2`)
		_ = a.Rollback(context.Background())
	})
	wg.Go(func() {
		_, errB = b.Exec(context.Background(), `UPDATE marks SET note = 'b' WHERE n = 1`)
		_ = b.Rollback(context.Background())
	})
	wg.Wait()
	if (errA == nil) == (errB == nil) {
		t.Fatalf("one should lose: %v, %v", errA, errB)
	}
	if errA == nil {
		errA = errB
	}
	expect(t, errA, "40P01", true)
	if err := other.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestALostRaceOfSerializableTransactionsIsTransient(t *testing.T) {
	t.Parallel()
	db, other := open(t, patient)
	late, err := db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.Background()) }()
	servers.Exec(t, late, `SELECT FROM marks`)
	servers.Exec(t, other, `UPDATE marks SET note = 'c' WHERE n = 1`)
	_, err = late.Exec(t.Context(), `UPDATE marks SET note = 'd' WHERE n = 1`)
	expect(t, err, "40001", true)
}

func TestAStandbyIsTransient(t *testing.T) {
	t.Parallel()
	db, _ := open(t, patient)
	tx, err := db.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly}) // as every transaction there is
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `UPDATE marks SET note = 'c' WHERE n = 1`)
	expect(t, err, "25006", true)
	_, err = tx.Exec(t.Context(), `SELECT 1`) // the transaction was broken by the statement before
	expect(t, err, "25P02", false)
}

// States that a test cannot bring about are raised by the server.
func TestStatesAreToldApart(t *testing.T) {
	t.Parallel()
	db, _ := open(t, patient)
	for state, transient := range map[string]bool{
		"08006": true, "08P01": true, "53100": true, "53200": true, "53300": true, "57P01": true, "57P03": true, "57014": true, "40001": true,
		"55P03": true, "25006": true, "25P03": true, "40002": true,
		"55006": false, "25001": false, "25P02": false, "23503": false, "23514": false, "22021": false, "P0001": false, "54000": false, "58030": false, "XX000": false,
	} {
		_, err := db.Exec(t.Context(), fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '%s'; END $$`, state))
		expect(t, err, state, transient)
	}
}
