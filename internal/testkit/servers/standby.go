package servers

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
)

// OwnPostgres starts a server that is this test's alone, and returns patient settings for it.
func OwnPostgres(t testing.TB) config.Settings {
	t.Helper()
	own, err := devstack.Start(context.Background(), devstack.Options{Unsafe: true})
	NoError(t, err)
	t.Cleanup(func() { _ = own.Stop() })
	settings := Patient(Defaults(t))
	settings.Postgres.URL = own.Postgres.URL("postgres")
	return settings
}

// NameStandby sets for whom commits are to wait.
func NameStandby(t testing.TB, db *pgxpool.Pool, name string) {
	t.Helper()
	Exec(t, db, `ALTER SYSTEM SET synchronous_standby_names = '`+name+`'`)
	Exec(t, db, `SELECT pg_reload_conf()`)
	Eventually(t, "the setting holds", func() bool { return Value[string](t, db, `SHOW synchronous_standby_names`) == name })
}

// AwaitNobody lets commits wait for a standby that is not there: until the checkpointer has read the setting, they do not.
func AwaitNobody(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	NameStandby(t, db, "nobody")
	var waits sync.WaitGroup
	waits.Go(func() {
		for err := error(nil); err == nil; {
			_, err = db.Exec(context.Background(), `SELECT pg_logical_emit_message(true, '', '')`)
		}
	})
	EndWait(t, db, "pg_cancel_backend")
	waits.Wait()
}

// AwaitCommit waits until a commit waits for the standby, or none does.
func AwaitCommit(t testing.TB, db *pgxpool.Pool, waiting bool) {
	t.Helper()
	Eventually(t, "a commit waits for the standby, or none", func() bool {
		return Value[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`) == waiting
	})
}

// EndWait ends a commit's wait for the standby. A session that is cut shows a moment longer.
func EndWait(t testing.TB, db *pgxpool.Pool, function string) {
	t.Helper()
	AwaitCommit(t, db, true)
	Exec(t, db, `SELECT `+function+`(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
	AwaitCommit(t, db, false)
}
