package httpapi

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/idempotency"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/telemetry"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestABatchThatWaitsForALockedKeyHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	settings.Accept.Timeout = servers.Patience
	settings.Postgres.LockTimeout = servers.Patience
	db, rdb, registry := servers.Pool(t, settings), servers.Redis(t, settings), prometheus.NewRegistry()
	dispatcher := queue.NewDispatcher(queue.NewClient(rdb, settings.Redis.Namespace), slog.New(slog.DiscardHandler), registry)
	t.Cleanup(dispatcher.Close)
	a := newAcceptor(db, settings.Accept, dispatcher, idempotency.NewRequests(rdb, settings.Redis.Namespace, settings.Draw.SecretKey, settings.Idempotency, registry), telemetry.NewHealth(), servers.Logger(t), registry)
	t.Cleanup(a.close)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	first, locked, other := fixture.PurchaseRequest(t, id, "mina", 1, 1), fixture.PurchaseRequest(t, id, "mina", 1, 1), fixture.PurchaseRequest(t, id, "noor", 2, 1)
	locked.Key = first.Key
	waited := make(chan job.Accepted, 1)
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		fixture.Accept(t, tx, first)
		go func() {
			accepted, err := a.requests.Do(t.Context(), locked)
			if err != nil {
				t.Error(err)
			}
			waited <- accepted
		}()
		servers.AwaitBlocked(t, db, 1)
		if accepted, err := a.requests.Do(t.Context(), other); err != nil || accepted.Job.ID != other.ID {
			t.Errorf("the other: %+v, %v", accepted, err)
		}
		servers.AwaitBlocked(t, db, 1) // still
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if accepted := <-waited; accepted.Job.ID != first.ID {
		t.Errorf("the one that has waited has %+v", accepted)
	}
}
