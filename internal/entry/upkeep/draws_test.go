package upkeep_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/drawing"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

// drawn draws a campaign with a beacon, or leaves it with its freeze.
func drawn(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain, wholly bool) uuid.UUID {
	t.Helper()
	draft := fixture.Draft(3)
	draft.Policies.Beacon = true
	id := fixture.CampaignOn(t, db, draft, &chain.Chain)
	ref := fixture.SellOut(t, db, id)
	drawer := drawing.NewDrawer(db, fixture.Key(t), config.Draw{Lease: time.Hour, Timeout: servers.Patience}, drawing.DrawerOptions{Beacon: chain}, servers.Logger(t))
	_, err := drawer.Run(t.Context(), ref)
	if _, waits := errors.AsType[*drawing.Waiting](err); !waits {
		t.Fatalf("it does not wait: %v", err)
	}
	if !wholly {
		return id
	}
	f, _, err := drawing.FreezeOf(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := drawing.InsertRound(t.Context(), db, chain.Hash(), chain.Sign(*f.Round)); err != nil {
		t.Fatal(err)
	}
	if _, err := drawer.Run(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	return id
}

// A change that gets past the triggers is found: a freeze and a draw are redone from what they
// were made from.
func TestWhatBreaksAFreezeOrADrawIsFound(t *testing.T) {
	t.Parallel()
	chain, err := drandsim.NewChain([]byte(strings.Repeat("5e", 32)), time.Now().Add(-time.Hour), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	db := servers.DB(t)
	complete, waiting := drawn(t, db, chain, true), drawn(t, db, chain, false)
	fixture.Sound(t, db)
	for _, c := range []struct {
		of      uuid.UUID
		finding string // or invariant
		sql     string
	}{
		{complete, "the stored list is not the one that was frozen", `UPDATE freezes SET root = sha256(root) WHERE campaign_id = $1`},
		{waiting, "the stored list is not the one that was frozen", `UPDATE freeze_subtrees SET leaves = set_byte(leaves, 55, get_byte(leaves, 55) # 1) WHERE campaign_id = $1`},
		{complete, "the stored list is not the one that was frozen", `DELETE FROM freeze_subtrees WHERE campaign_id = $1`},
		{complete, "its subtrees are not those of the stored list", `UPDATE freeze_subtrees SET hash = sha256(hash) WHERE campaign_id = $1`},
		{waiting, "the sold positions are not those of the stored list", `UPDATE purchases SET user_id = 'somebody else' WHERE campaign_id = $1`},
		{waiting, "the sold positions are not those of the stored list", `UPDATE positions SET state = 'available', user_id = NULL, purchase_id = NULL, sold_at = NULL WHERE campaign_id = $1 AND (layer, col) = (3, 3)`},
		{complete, "its freeze record is not what it was frozen with", `UPDATE freezes SET record = replace(record, '"count":6', '"count":7') WHERE campaign_id = $1`},
		{complete, "its freeze record is not what it was frozen with", `UPDATE freezes SET frozen_at = frozen_at - interval '1 microsecond' WHERE campaign_id = $1`},
		{complete, "its freeze record is not what it was frozen with", `UPDATE freezes SET round = round + 1 WHERE campaign_id = $1`},
		{waiting, "the newest at the freeze", `UPDATE freezes SET record = replace(record, '"round":' || round, '"round":' || (round + 21)), round = round + 21 WHERE campaign_id = $1`},
		{waiting, "the newest at the freeze", `UPDATE freezes SET record = replace(record, '"round":' || round, '"round":' || (round - 25)), round = round - 25 WHERE campaign_id = $1`},
		{waiting, "the secret in its freeze record is not the one committed to",
			`UPDATE freezes SET record = regexp_replace(record, '"secret":"[0-9a-f]{64}"', '"secret":"` + strings.Repeat("ab", 32) + `"') WHERE campaign_id = $1`},
		{complete, "its freeze and its rules do not agree on a beacon", `UPDATE freezes SET round = NULL WHERE campaign_id = $1`},
		{complete, "the chain that its rules name is not stored as they name it", `UPDATE beacon_chains SET beacon_id = 'another' WHERE $1::uuid IS NOT NULL`},
		{complete, "its round is not stored", `DELETE FROM beacon_rounds WHERE $1::uuid IS NOT NULL`},
		{complete, "the signature of its round is not the chain's", `UPDATE beacon_rounds SET signature = 'forged', randomness = sha256('forged') WHERE $1::uuid IS NOT NULL`},
		{complete, "the signature of its round is not the chain's", `INSERT INTO beacon_rounds SELECT b.chain_hash, f.round, 'forged', sha256('forged') FROM beacon_chains b, freezes f WHERE f.campaign_id = $1`},
		{waiting, "the signature of its round is not the chain's", `INSERT INTO beacon_rounds SELECT b.chain_hash, f.round, 'forged', sha256('forged') FROM beacon_chains b, freezes f WHERE f.campaign_id = $1`},
		{complete, "it was not drawn with the randomness of its round", `UPDATE draws SET randomness = sha256('invented') WHERE campaign_id = $1`},
		{complete, "it was not drawn with the randomness of its round", `UPDATE draws SET trust = 'operator' WHERE campaign_id = $1`},
		{complete, "the revealed secret is not the one committed to", `UPDATE draws SET secret = sha256(secret) WHERE campaign_id = $1`},
		{complete, "it was drawn from another list than the frozen one", `UPDATE draws SET root = sha256(root) WHERE campaign_id = $1`},
		{complete, "the published winners do not follow from the inputs", `UPDATE draws SET winners = '[]' WHERE campaign_id = $1`},
		{complete, "a draw awards each prize once", `UPDATE draws SET winners = winners || winners WHERE campaign_id = $1`},
		{complete, "was frozen after the end of the sale", `UPDATE freezes SET sold = sold - 1 WHERE campaign_id = $1`},
		{complete, "the prizes were not awarded as published", `UPDATE prizes SET winning_column = NULL WHERE campaign_id = $1`},
		{complete, "only a draw under way waits for something", `INSERT INTO draw_waits VALUES ($1, 'nothing', now())`},
		{complete, "a published campaign has its sealed secret", `DELETE FROM draw_secrets WHERE campaign_id = $1`},
		{waiting, "the beacon that its policies promise", `UPDATE commitments SET rules = regexp_replace(rules, '"beacon":[{][^}]*[}]', '"beacon":null') WHERE campaign_id = $1`},
		{waiting, "a campaign is frozen only while it is drawing", `UPDATE campaigns SET state = 'active' WHERE id = $1`},
		{waiting, "when its draw is void", `UPDATE campaigns SET state = 'cancelled', draw_started_at = now() - interval '2 days', cancelled_at = now(), cancelled_by = 'operator:ops' WHERE id = $1`},
		{waiting, "when its draw is void", `WITH late AS (INSERT INTO draw_voids VALUES ($1, now(), now() + interval '168 hours')) UPDATE campaigns SET state = 'cancelled', draw_started_at = now() - interval '2 days', cancelled_at = now(), cancelled_by = 'operator:ops' WHERE id = $1`},
		{complete, "a campaign is frozen only while it is drawing", `WITH below AS (DELETE FROM freeze_subtrees WHERE campaign_id = $1) DELETE FROM freezes WHERE campaign_id = $1`},
	} {
		found := foundAfter(t, db, c.sql, c.of)
		if !strings.Contains(found, c.finding) {
			t.Errorf("%s\nwant %q, found %q", c.sql, c.finding, found)
		}
	}
	fixture.Sound(t, db)
}

// foundAfter returns what the audit finds after a statement that no trigger refuses, and
// takes it back.
func foundAfter(t *testing.T, db *pgxpool.Pool, sql string, args ...any) (found string) {
	t.Helper()
	undo := errors.New("undone")
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		for _, table := range []string{"campaigns", "commitments", "freezes", "freeze_subtrees", "beacon_chains", "beacon_rounds", "draws", "draw_voids"} {
			if _, err := tx.Exec(t.Context(), `ALTER TABLE `+table+` DISABLE TRIGGER USER`); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
			return err
		}
		violations, err := checkIn(t.Context(), tx)
		for _, v := range violations {
			found += v.Invariant + ": " + v.Subject + "\n"
		}
		return errors.Join(undo, err)
	})
	if !errors.Is(err, undo) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%s: %v", sql, err)
	}
	return found
}
