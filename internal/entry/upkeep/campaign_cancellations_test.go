package upkeep_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Each invariant of a cancelled campaign notices what breaks it.
func TestWhatBreaksACancelledCampaignIsFound(t *testing.T) {
	t.Parallel()
	for invariant, sql := range map[string]string{
		"a cancelled campaign has no active holds":                                                                                                       `UPDATE holds SET state = 'active', ended_at = NULL`,
		"a campaign whose cancellation has succeeded is cancelled, and nothing of it is sold":                                                            `UPDATE campaigns SET positions_sold = 1`,
		"a purchase by wallet or external has a refund of each cancelled part, and of the rest when it is cancelled, to its buyer, and no other has one": `UPDATE refunds SET amount = amount - 1`,
	} {
		db := servers.DB(t)
		calledOff(t, db)
		fixture.Sound(t, db)
		servers.Exec(t, db, sql)
		found := checkAll(t, db)
		var named bool
		for _, v := range found {
			named = named || v.Invariant == invariant
		}
		if !named {
			t.Errorf("%s\nfound %+v", sql, found)
		}
	}
}

// calledOff cancels a campaign with a hold and a purchase.
func calledOff(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	campaignID := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Buy(t, db, campaignID, "mina", 0, 2)
	fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldAnyRequest(campaignID, "otto", 0, 1))
	payload, err := json.Marshal(lifecycle.CancelOrder{By: "operator:ops"})
	if err != nil {
		t.Fatal(err)
	}
	id := uuidv7.New()
	ref := fixture.Accept(t, db, job.Request{ID: id, Client: "test", Key: id.String(), Kind: job.KindCampaignCancellation, CampaignID: campaignID,
		Payload: payload, Keep: time.Hour})[0]
	if _, err := lifecycle.NewCanceller(db, lifecycle.Observer{}, servers.Logger(t)).Run(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
}
