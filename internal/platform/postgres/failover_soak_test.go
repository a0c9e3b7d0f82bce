//go:build soak

package postgres_test

import (
	"context"
	"errors"
	"testing"

	"triprize/devkit/devstack"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// A process goes on with the standby that was promoted, and refuses the old primary that comes back.
func TestAProcessFollowsAPromotionAndNotTheOldPrimary(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.Background(), devstack.Options{Unsafe: true, Postgres: devstack.PostgresStandby})
	servers.NoError(t, err)
	t.Cleanup(func() { _ = stack.Stop() })
	settings := servers.Patient(servers.Defaults(t))
	settings.Postgres.URL = stack.PostgresURL("postgres")
	db := open(t, postgres.NewServers(servers.Logger(t)), settings)
	servers.Exec(t, db, `CREATE TABLE marks (n int)`)
	servers.Exec(t, db, `INSERT INTO marks VALUES (1)`)
	servers.NoError(t, stack.Postgres.Stop())
	_, err = db.Exec(t.Context(), `INSERT INTO marks VALUES (2)`)
	expectTransient(t, "without a primary", err, true)
	standby := settings
	standby.Postgres.URL = stack.Standby.URL("postgres")
	servers.Exec(t, servers.Pool(t, standby), `SELECT pg_promote()`)
	servers.Exec(t, db, `INSERT INTO marks VALUES (3)`) // at once
	if n := servers.Value[int](t, db, `SELECT count(*) FROM marks`); n != 2 {
		t.Errorf("it has %d rows", n)
	}
	servers.NoError(t, stack.Postgres.Start())
	servers.NoError(t, stack.Standby.Stop())
	servers.Eventually(t, "the old primary is refused", func() bool {
		_, err := db.Exec(t.Context(), `SELECT FROM marks`)
		if err == nil {
			t.Fatal("it reads from the old primary")
		}
		return errors.Is(err, postgres.ErrAnotherPrimary)
	})
}
