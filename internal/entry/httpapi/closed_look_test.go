package httpapi

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

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
