package job_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"triprize/devkit/devstack"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/servers"
)

// A job is there, and its commit did not wait for the standby: its request is answered when a later commit has waited.
func TestARepeatedRequestWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.Background(), devstack.Options{Unsafe: true})
	servers.NoError(t, err)
	t.Cleanup(func() { _ = stack.Stop() })
	settings := servers.Patient(servers.Defaults(t))
	settings.Postgres.URL = stack.Postgres.URL("postgres")
	db, admin := servers.Pool(t, settings), servers.Pool(t, settings)
	servers.NoError(t, schema.Migrate(t.Context(), db))
	standby := func(name string) {
		servers.Exec(t, admin, `ALTER SYSTEM SET synchronous_standby_names = '`+name+`'`)
		servers.Exec(t, admin, `SELECT pg_reload_conf()`)
	}
	waiting := func(want bool) { // a session that is cut shows a moment longer
		t.Helper()
		servers.Eventually(t, fmt.Sprint("a commit waits for the standby: ", want), func() bool {
			return servers.Value[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`) == want
		})
	}
	for name, accept := range map[string]func() ([]job.Done, error){
		"of a job": func() ([]job.Done, error) {
			done, _, err := job.Accept(context.Background(), db, []job.Request{request("k", "a")})
			return done, err
		},
		"of a command": func() ([]job.Done, error) {
			return job.OnceEach(context.Background(), db, []job.Request{request("c", "a")}, func(pgx.Tx, []int) ([]job.Answer, error) {
				return []job.Answer{{Body: 1}}, nil
			})
		},
	} {
		var done []job.Done
		over := make(chan error, 1)
		again := func() {
			var err error
			done, err = accept()
			over <- err
		}
		standby("nobody")
		armed := make(chan struct{})
		go func() { // until the checkpointer has read the setting, commits do not wait
			defer close(armed)
			emit := func(tx pgx.Tx) error {
				_, err := tx.Exec(context.Background(), `SELECT pg_logical_emit_message(true, '', '')`)
				return err
			}
			for postgres.InTx(context.Background(), db, emit) == nil {
			}
		}()
		waiting(true)
		servers.Exec(t, admin, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		<-armed
		waiting(false)
		go again()
		waiting(true)
		servers.Exec(t, admin, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		if err := <-over; !postgres.IsTransient(err) {
			t.Fatalf("%s: the first: %v", name, err)
		}
		waiting(false)
		go again()
		waiting(true)
		standby("") // then nothing waits
		if err := <-over; err != nil || !done[0].Replayed {
			t.Errorf("%s: the second: %+v, %v", name, done, err)
		}
	}
}
