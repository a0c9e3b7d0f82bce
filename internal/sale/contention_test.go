package sale_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestAWaitForALockedCampaignEnds(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 0, 1))
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		if err := campaign.Lock(t.Context(), tx, id); err != nil {
			return err
		}
		report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.LockWait{Campaign: 20 * time.Millisecond})
		if err != nil || !report.TimedOut || !slices.Equal(report.Locked, refs) || !slices.Equal(report.Busy, refs) {
			t.Errorf("%+v, %v", report, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestManyWorkersSellOneHotCampaign(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(12))
	var requests []job.Request
	for i := range 100 {
		requests = append(requests, fixture.PurchaseRequest(t, id, fmt.Sprint(i), 0, 1))
	}
	refs := fixture.Accept(t, db, requests...)
	var workers sync.WaitGroup
	for w := range 6 {
		workers.Go(func() {
			for start := 0; start < len(refs); start += 10 { // every worker is given every job
				from := (start + w*30) % len(refs)
				if _, err := fixture.Seller(db).Sell(t.Context(), refs[from:from+10], sale.WaitForCampaign); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	succeeded := 0
	for _, ref := range refs {
		if j := fixture.Job(t, db, ref.ID); j.State == job.Succeeded {
			succeeded++
		} else if j.Problem == nil || j.Problem.Code != fault.SoldOut {
			t.Errorf("job %s is %s, %+v", ref.ID, j.State, j.Problem)
		}
	}
	if succeeded != 78 {
		t.Errorf("%d jobs succeeded for 78 positions", succeeded)
	}
	fixture.Sound(t, db)
}

// A writer that changes positions without the campaign's lock breaks the rule of
// package campaign. The batch must then fail rather than sell a position twice.
func TestRowsThatMoveUnderTheLockRollTheBatchBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, c := range map[string]struct {
		disturb string
		want    error
	}{
		"a version":  {`UPDATE positions SET version = version + 1 WHERE campaign_id = $1`, postgres.ErrRows},
		"a counter":  {`UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`, postgres.ErrRows},
		"the orders": {`UPDATE jobs SET state = 'failed', problem = '{}', finished_at = clock_timestamp() WHERE campaign_id = $1`, job.ErrFinal},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 0, 2))
		_, err := sale.NewSeller(disturbed{db, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), c.disturb, id)
			return err
		}}, time.Hour, fixture.Reservations).Sell(t.Context(), refs, sale.SkipLocked)
		if !errors.Is(err, c.want) {
			t.Errorf("%s moved: %v", name, err)
		}
		if n := purchases(t, db, id); n != 0 {
			t.Errorf("%s moved: %d purchases stayed", name, n)
		}
	}
}

func purchases(t *testing.T, db postgres.DB, id uuid.UUID) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM purchases WHERE campaign_id = $1`, id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
