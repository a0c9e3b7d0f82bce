package sale_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// A writer that changes rows without the campaign's lock makes the cancellation fail
// as a whole.
func TestRowsThatMoveUnderTheLockRollTheCancellationBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, c := range map[string]struct {
		disturb string
		want    error
	}{
		"a position":   {`UPDATE positions SET state = 'available', user_id = NULL, purchase_id = NULL, sold_at = NULL WHERE campaign_id = $1 AND (layer, col) = (2, 1)`, postgres.ErrRows},
		"the purchase": {`UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE campaign_id = $1`, postgres.ErrRows},
		"the campaign": {`UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`, postgres.ErrRows},
		"the job":      {`UPDATE jobs SET state = 'failed', problem = '{}', finished_at = clock_timestamp() WHERE campaign_id = $1 AND kind = 'cancellation'`, job.ErrFinal},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		bought := fixture.Buy(t, db, id, "a", 2, 2)
		ref := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))[0]
		_, err := sale.NewSeller(disturbed{db, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), c.disturb, id)
			return err
		}}, time.Hour, fixture.Reservations).Cancel(t.Context(), []job.Ref{ref}, forAll)
		if !errors.Is(err, c.want) {
			t.Errorf("%s moved: %v", name, err)
		}
		p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
		if err != nil || p.State != purchase.Completed || sold(t, db, id) != 2 || fixture.Job(t, db, ref.ID).State != job.Queued {
			t.Errorf("%s moved, and something stayed: %s, %v", name, p.State, err)
		}
	}
}

// A job whose purchase is of another campaign than the one it locks is a defect: it
// fails without an answer.
func TestACancellationKeepsToTheCampaignItLocks(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3))
	bought := fixture.Buy(t, db, other, "a", 0, 1)
	ref := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))[0]
	if _, err := fixture.Seller(db).Cancel(t.Context(), []job.Ref{ref}, forAll); err == nil || isFault(err) {
		t.Errorf("got %v", err)
	}
	if j := fixture.Job(t, db, ref.ID); j.State != job.Queued || sold(t, db, other) != 1 {
		t.Errorf("the job is %s", j.State)
	}
}

func isFault(err error) bool {
	_, ok := errors.AsType[*fault.Error](err)
	return ok
}
