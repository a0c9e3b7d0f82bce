package httpapi

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Jobs decide about all other kinds, and about purchases of campaigns that may sell again.
func TestALookRefusesOnlyPurchasesOfClosedCampaigns(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	settings.Accept.Timeout = servers.Patience
	db := servers.Pool(t, settings)
	cancelled, paused := fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3))
	var b pgx.Batch
	campaign.QueueCancel(&b, cancelled, "operator:ops", "a test")
	b.Queue(`UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, paused)
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	purchase, other, wait := fixture.PurchaseRequest(t, cancelled, "mina", 1, 1), fixture.PurchaseRequest(t, cancelled, "mina", 1, 1), fixture.PurchaseRequest(t, paused, "mina", 1, 1)
	other.Kind = job.KindCancellation
	closed := newClosedSales(db, settings.Accept, prometheus.NewRegistry())
	t.Cleanup(closed.looks.Close)
	answers, err := closed.look(t.Context(), []job.Request{purchase, other, wait})
	if err != nil || answers[0].refusal == nil || answers[1].refusal != nil || answers[2].refusal != nil {
		t.Errorf("%+v, %v", answers, err)
	}
}

// A purchase is accepted, and its campaign closes, while a repeated request waits to be looked at:
// it has its job.
func TestALookFindsTheJobThatWasMadeJustBeforeTheEnd(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	settings.Accept.Timeout = servers.Patience
	db := servers.Pool(t, settings)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	request := fixture.PurchaseRequest(t, id, "mina", 1, 1)
	closed := newClosedSales(db, settings.Accept, prometheus.NewRegistry())
	t.Cleanup(closed.looks.Close)
	found := make(chan closedAnswer, 1)
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `LOCK TABLE campaigns IN ACCESS EXCLUSIVE MODE`)
		go func() {
			answer, err := closed.looks.Do(t.Context(), request)
			if err != nil {
				t.Error(err)
			}
			found <- answer
		}()
		servers.AwaitBlocked(t, db, 1)
		fixture.Accept(t, tx, request)
		var b pgx.Batch
		campaign.QueueCancel(&b, id, "operator:ops", "a test")
		return tx.SendBatch(t.Context(), &b).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	if answer := <-found; answer.refusal == nil || !answer.hasJob || answer.earlier.Job.ID != request.ID {
		t.Errorf("%+v", answer)
	}
}
