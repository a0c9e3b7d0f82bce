package lifecycle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var unsold = lifecycle.CancelOrder{By: job.System, Reason: "the sale has ended", IfUnsold: true}

// endedCampaign is a campaign of six positions with the policy cancel. Its sale ended a
// moment ago, or ends in an hour.
func endedCampaign(t *testing.T, db *pgxpool.Pool, policy string, ended bool) uuid.UUID {
	t.Helper()
	draft := fixture.Draft(3)
	draft.Policies.Unsold = policy
	id := fixture.Campaign(t, db, draft)
	endSale(t, db, id, ended)
	return id
}

func endSale(t *testing.T, db *pgxpool.Pool, id uuid.UUID, ended bool) {
	t.Helper()
	servers.Exec(t, db, `UPDATE campaigns SET sale_ends_at = clock_timestamp() + CASE WHEN $2 THEN interval '-1 s' ELSE '1 hour' END WHERE id = $1`, id, ended)
}

func TestASaleThatHasEndedUnsoldIsCancelled(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := endedCampaign(t, db, campaign.UnsoldCancel, false)
	fixture.Buy(t, db, id, "mina", 0, 2)
	endSale(t, db, id, true)
	outcome, err := canceller(t, db).Run(t.Context(), order(t, db, id, unsold))
	if err != nil || resultOf(t, outcome).Refunded.External != 1 {
		t.Errorf("%+v, %v", outcome, err)
	}
	if by := campaignOf(t, db, id).CancelledBy; by == nil || *by != "system" {
		t.Errorf("cancelled by %v", by)
	}
	fixture.Sound(t, db)
}

// The state under the lock decides, not what was found before.
func TestASaleWhoseEndWasPutOffIsNotCancelled(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, id := range []uuid.UUID{endedCampaign(t, db, campaign.UnsoldCancel, false), endedCampaign(t, db, campaign.UnsoldStay, true)} {
		refused(t, db, order(t, db, id, unsold), fault.StateConflict)
		if c := campaignOf(t, db, id); c.State != campaign.Active {
			t.Errorf("it is %s", c.State)
		}
	}
}

// The last positions are being paid when the sale ends: it may still be sold out.
func TestASaleThatMayStillBeSoldOutIsNotCancelledYet(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := endedCampaign(t, db, campaign.UnsoldCancel, false)
	fixture.Sell(t, db, id, 5)
	last, paid := fixture.Reserve(t, db, id, "carl", 1, time.Hour)
	endSale(t, db, id, true)
	ref := order(t, db, id, unsold)
	if _, err := canceller(t, db).Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrWaiting) {
		t.Errorf("got %v", err)
	}
	if found, err := campaign.EndedUnsold(t.Context(), db, 10); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
	if c := campaignOf(t, db, id); c.State != campaign.Active {
		t.Errorf("it is %s", c.State)
	}
	fixture.EndAs(t, db, last, payment.Expired)
	fixture.Conclude(t, db, paid)
	if found, err := campaign.EndedUnsold(t.Context(), db, 10); err != nil || len(found) != 1 || found[0].ID != id {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err := canceller(t, db).Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
}
