package httpapi

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// acceptorOf returns an acceptor of a test, which waits for locks as long as the test.
func acceptorOf(t *testing.T) (*acceptor, *pgxpool.Pool) {
	t.Helper()
	settings := servers.Settings(t)
	settings.Accept.Timeout, settings.Postgres.LockTimeout = servers.Patience, servers.Patience
	db, rdb, registry := servers.Pool(t, settings), servers.Redis(t, settings), prometheus.NewRegistry()
	dispatcher := queue.NewDispatcher(queue.NewClient(rdb, settings.Redis.Namespace), 0, slog.New(slog.DiscardHandler), registry)
	t.Cleanup(dispatcher.Close)
	a := newAcceptor(db, settings.Accept, dispatcher, telemetry.NewHealth(), servers.Logger(t), registry)
	t.Cleanup(a.close)
	return a, db
}

func TestABatchThatWaitsForALockedKeyHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	a, db := acceptorOf(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	first, locked, other := fixture.PurchaseRequest(t, id, "mina", 1, 1), fixture.PurchaseRequest(t, id, "mina", 1, 1), fixture.PurchaseRequest(t, id, "noor", 2, 1)
	locked.Key = first.Key
	waited := make(chan job.Done, 1)
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
	servers.NoError(t, err)
	if accepted := <-waited; accepted.Job.ID != first.ID {
		t.Errorf("the one that has waited has %+v", accepted)
	}
}

// In one batch the refused are told why; what is no purchase is not refused for its campaign.
func TestABatchSaysWhyAClosedCampaignSellsNothing(t *testing.T) {
	t.Parallel()
	a, db := acceptorOf(t)
	soldOut, cancelled, paused := fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3))
	fixture.SellOut(t, db, soldOut)
	var b pgx.Batch
	campaign.QueueCancel(&b, cancelled, "operator:ops", "a test", false)
	b.Queue(`UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, paused)
	servers.NoError(t, db.SendBatch(t.Context(), &b).Close())
	other := fixture.PurchaseRequest(t, cancelled, "mina", 1, 1)
	other.Kind = job.KindCancellation
	done, err := a.flush(t.Context(), []job.Request{fixture.PurchaseRequest(t, soldOut, "mina", 1, 1), fixture.PurchaseRequest(t, cancelled, "mina", 1, 1),
		other, fixture.PurchaseRequest(t, paused, "mina", 1, 1)})
	if err != nil || fault.CodeOf(done[0].Err) != fault.SoldOut || fault.CodeOf(done[1].Err) != fault.CampaignNotActive || done[2].Err != nil || done[3].Err != nil {
		t.Errorf("%+v, %v", done, err)
	}
}

// A purchase is accepted, and its campaign closes, while a repeated request waits: it has its job.
func TestABatchFindsTheJobThatWasMadeJustBeforeTheEnd(t *testing.T) {
	t.Parallel()
	a, db := acceptorOf(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	request := fixture.PurchaseRequest(t, id, "mina", 1, 1)
	again := request
	again.ID = uuid.New()
	found := make(chan job.Done, 1)
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `LOCK TABLE campaigns IN ACCESS EXCLUSIVE MODE`)
		go func() {
			made, err := a.closed.Do(t.Context(), again)
			if err != nil {
				t.Error(err)
			}
			found <- made
		}()
		servers.AwaitBlocked(t, db, 1)
		fixture.Accept(t, tx, request)
		var b pgx.Batch
		campaign.QueueCancel(&b, id, "operator:ops", "a test", false)
		return tx.SendBatch(t.Context(), &b).Close()
	})
	servers.NoError(t, err)
	if made := <-found; made.Err != nil || !made.Replayed || made.Job.ID != request.ID {
		t.Errorf("%+v", made)
	}
}
