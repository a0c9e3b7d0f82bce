package job_test

import (
	"context"
	"testing"

	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/servers"
)

// A job is there, and its commit did not wait for the standby: its request is answered when a later commit has waited.
func TestARepeatedRequestWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	db := servers.Pool(t, servers.OwnPostgres(t))
	servers.NoError(t, schema.Migrate(t.Context(), db))
	var done []job.Done
	over := make(chan error, 1)
	accept := func() {
		var err error
		done, _, err = job.Accept(context.Background(), db, []job.Request{request("k", "a")})
		over <- err
	}
	servers.AwaitNobody(t, db)
	go accept()
	servers.EndWait(t, db, "pg_cancel_backend")
	if err := <-over; !postgres.IsTransient(err) {
		t.Fatalf("the first: %v", err)
	}
	go accept()
	servers.AwaitCommit(t, db, true)
	servers.NameStandby(t, db, "") // then nothing waits
	if err := <-over; err != nil || !done[0].Replayed {
		t.Errorf("the second: %+v, %v", done, err)
	}
}
