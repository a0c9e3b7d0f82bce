package lifecycle_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/beacon"
	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/lifecycle"
	"triprize/internal/store/campaign"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// What a campaign binds itself to cannot change later: the rules name the authorities by
// the hashes of their root certificates.
func TestPublicationBindsTheCampaignToItsAuthorities(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	chain := beacon.Quicknet()
	bindings := lifecycle.Bindings{Chain: &chain, Authorities: []fairdraw.Hash{{1}, {2}}}
	witnessed := fixture.Draft(3)
	witnessed.Policies.Beacon, witnessed.Policies.Witness = true, true
	plain := fixture.Draft(3)
	plain.Policies.Beacon = true
	for want, d := range map[int]campaign.Draft{2: witnessed, 0: plain} {
		id := fixture.CampaignOn(t, db, d, bindings)
		text := servers.Value[[]byte](t, db, `SELECT rules FROM commitments WHERE campaign_id = $1`, id)
		rules, err := fairdraw.ParseRules(text)
		if err != nil || rules.Check(id) != nil || !slices.Equal(rules.Witness, bindings.Authorities[:want]) {
			t.Errorf("the rules name %v, want %d: %v", rules.Witness, want, err)
		}
	}
	// Its authorities were taken out of the settings after it was drafted.
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		id := uuidv7.New()
		if err := campaign.Create(t.Context(), tx, id, witnessed); err != nil {
			return err
		}
		return lifecycle.Publish(t.Context(), tx, fixture.Key(t), lifecycle.Bindings{Chain: &chain}, id)
	})
	if refused, ok := errors.AsType[*fault.Error](err); !ok || refused.Code != fault.StateConflict {
		t.Errorf("published without authorities: %v", err)
	}
}
