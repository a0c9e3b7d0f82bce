package job_test

import (
	"context"
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

// intakeOf returns an Intake of a test, which waits for locks as long as the test. closed: it takes every campaign for closed.
func intakeOf(t *testing.T, closed bool) (*job.Intake, *pgxpool.Pool) {
	t.Helper()
	settings := servers.Settings(t)
	settings.Accept.Timeout, settings.Postgres.LockTimeout = servers.Patience, servers.Patience
	db, rdb, registry := servers.Pool(t, settings), servers.Redis(t, settings), prometheus.NewRegistry()
	dispatcher := queue.NewDispatcher(queue.NewClient(rdb, settings.Redis.Namespace), servers.Patience, slog.New(slog.DiscardHandler), registry)
	t.Cleanup(dispatcher.Close)
	in := job.NewIntake(settings.Accept, job.IntakeOptions{DB: db, Dispatcher: dispatcher, Health: telemetry.NewHealth(), Triggered: func(...job.Message) {},
		Waits:  job.NewQueueWaits(queue.NewFinder(rdb, settings.Redis.Namespace), nil, nil, registry),
		Closed: func(context.Context, uuid.UUID) bool { return closed }, Reread: func(context.Context, uuid.UUID) {}, Explain: campaign.Refusals}, registry)
	t.Cleanup(in.Close)
	return in, db
}

// ask has a request accepted; there is no bound.
func ask(t *testing.T, in *job.Intake, r job.Request) (job.Accepted, error) {
	accepted, _, err := in.Accept(t.Context(), r, job.Asked{Bound: func(context.Context, uuid.UUID) (func(), error) { return func() {}, nil }})
	return accepted, err
}

func TestABatchThatWaitsForALockedKeyHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	in, db := intakeOf(t, false)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	first, locked, other := fixture.PurchaseRequest(t, id, "mina", 1, 1), fixture.PurchaseRequest(t, id, "mina", 1, 1), fixture.PurchaseRequest(t, id, "noor", 2, 1)
	locked.Key = first.Key
	waited := make(chan job.Accepted, 1)
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		fixture.Accept(t, tx, first)
		go func() {
			accepted, err := ask(t, in, locked)
			if err != nil {
				t.Error(err)
			}
			waited <- accepted
		}()
		servers.AwaitBlocked(t, db, 1)
		if accepted, err := ask(t, in, other); err != nil || accepted.Job.ID != other.ID {
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
	in, db := intakeOf(t, false)
	soldOut, cancelled, paused := fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3))
	fixture.SellOut(t, db, soldOut)
	var b pgx.Batch
	campaign.QueueCancel(&b, cancelled, "operator:ops", "a test", false)
	b.Queue(`UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, paused)
	servers.NoError(t, db.SendBatch(t.Context(), &b).Close())
	other := fixture.PurchaseRequest(t, cancelled, "mina", 1, 1)
	other.Kind = job.KindCancellation
	done, err := job.Flush(t.Context(), in, fixture.PurchaseRequest(t, soldOut, "mina", 1, 1), fixture.PurchaseRequest(t, cancelled, "mina", 1, 1),
		other, fixture.PurchaseRequest(t, paused, "mina", 1, 1))
	if err != nil || fault.CodeOf(done[0].Err) != fault.SoldOut || fault.CodeOf(done[1].Err) != fault.CampaignNotActive || done[2].Err != nil || done[3].Err != nil {
		t.Errorf("%+v, %v", done, err)
	}
}

// A purchase is accepted, and its campaign closes, while a repeated request waits: it has its job.
func TestABatchFindsTheJobThatWasMadeJustBeforeTheEnd(t *testing.T) {
	t.Parallel()
	in, db := intakeOf(t, true)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	request := fixture.PurchaseRequest(t, id, "mina", 1, 1)
	again := request
	again.ID = uuid.New()
	found := make(chan job.Accepted, 1)
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `LOCK TABLE campaigns IN ACCESS EXCLUSIVE MODE`)
		go func() {
			made, err := ask(t, in, again)
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
	if made := <-found; !made.Replayed || made.Job.ID != request.ID {
		t.Errorf("%+v", made)
	}
}
