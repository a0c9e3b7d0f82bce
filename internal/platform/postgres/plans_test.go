package postgres_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// A plan names what it uses, and is kept while a setting says otherwise: so it shows when it
// was made.
func TestASessionForgetsItsPlansAfterAWhile(t *testing.T) {
	t.Parallel()
	base := servers.DB(t)
	servers.Exec(t, base, `CREATE TABLE marks (n int PRIMARY KEY)`)
	settings := base.Config()
	settings.MaxConns, settings.PrepareConn = 1, postgres.PlanAnew(time.Hour, servers.Patience)
	db, err := pgxpool.NewWithConfig(t.Context(), settings)
	servers.NoError(t, err)
	t.Cleanup(db.Close)
	scans := func(on string) { // which way to read the table is open
		servers.Exec(t, db, `SET enable_seqscan = `+on)
		for _, other := range []string{"indexscan", "indexonlyscan", "bitmapscan"} {
			servers.Exec(t, db, `SET enable_`+other+` = `+map[string]string{"on": "off", "off": "on"}[on])
		}
	}
	check := func(what, want string) {
		t.Helper()
		if plan := servers.Value[string](t, db, `EXPLAIN EXECUTE kept`); !strings.Contains(plan, want) {
			t.Errorf("%s the plan is %s", what, plan)
		}
	}
	servers.Exec(t, db, `PREPARE kept AS SELECT n FROM marks WHERE n = 1`)
	check("without scans", "Index")
	scans("on")
	check("a moment later", "Index")
	if err := db.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		postgres.AgePlans(conn.Conn(), 2*time.Hour)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	check("two hours later", "Seq Scan")
	scans("off")
	check("again a moment later", "Seq Scan")
}

func TestACallerThatGivesUpLeavesTheSessionWhole(t *testing.T) {
	t.Parallel()
	conn, err := servers.DB(t).Acquire(t.Context())
	servers.NoError(t, err)
	defer conn.Release()
	postgres.AgePlans(conn.Conn(), 2*time.Hour)
	ended, end := context.WithCancel(t.Context())
	end()
	if usable, err := postgres.PlanAnew(time.Hour, servers.Patience)(ended, conn.Conn()); !usable || err != nil {
		t.Error(usable, err)
	}
	if err := conn.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASessionThatDoesNotForgetItsPlansIsNotUsed(t *testing.T) {
	t.Parallel()
	settings := servers.DB(t).Config()
	var cut atomic.Bool
	dial := settings.ConnConfig.DialFunc
	settings.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil || cut.Load() {
			return conn, err
		}
		return swallowing{conn, &cut}, nil
	}
	db, err := pgxpool.NewWithConfig(t.Context(), settings)
	servers.NoError(t, err)
	t.Cleanup(db.Close)
	conn, err := db.Acquire(t.Context())
	servers.NoError(t, err)
	defer conn.Release()
	postgres.AgePlans(conn.Conn(), 2*time.Hour)
	cut.Store(true)
	if usable, err := postgres.PlanAnew(time.Hour, postgres.DiscardTimeout)(t.Context(), conn.Conn()); usable || err != nil {
		t.Error(usable, err)
	}
	_ = conn.Conn().PgConn().Conn().Close() // else its end is waited for
}

// swallowing is a connection that brings nothing to Postgres once it is cut.
type swallowing struct {
	net.Conn
	cut *atomic.Bool
}

func (s swallowing) Write(b []byte) (int, error) {
	if s.cut.Load() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

func TestOneTransactionMayScan(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	const settings = `SELECT string_agg(current_setting(name), ' ') FROM unnest(ARRAY['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'enable_material', 'jit']) AS name`
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		if err := postgres.AllowScans(t.Context(), tx); err != nil {
			return err
		}
		if got := servers.Value[string](t, tx, settings); got != "on on on on on" {
			t.Errorf("in it they are %s", got)
		}
		return nil
	})
	servers.NoError(t, err)
	if got := servers.Value[string](t, db, settings); got != "off off off off off" {
		t.Errorf("after it they are %s", got)
	}
}
