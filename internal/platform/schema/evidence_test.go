package schema_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/beacon"
	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/service/draw"
	"triprize/internal/service/lifecycle"
	"triprize/internal/store/campaign"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// downFrom takes back migrations until one of this number is taken back or refused.
func downFrom(t *testing.T, m *schema.Migrator, number string) error {
	t.Helper()
	for {
		done, err := m.Down(t.Context())
		if err != nil {
			return err
		}
		if len(done) != 1 {
			t.Fatalf("there is no migration %s", number)
		}
		if strings.Contains(done[0], number) {
			return nil
		}
	}
}

// promising returns drafts whose policies need something in the rules, and the terms for it.
func promising() (drafts map[string]campaign.Draft, terms lifecycle.Terms) {
	chain := beacon.Quicknet()
	withBeacon, withWitness := fixture.Draft(3), fixture.Draft(3)
	withBeacon.Policies.Beacon = true
	withWitness.Policies.Beacon, withWitness.Policies.Witness = true, true
	return map[string]campaign.Draft{"beacon": withBeacon, "witness": withWitness, "unsold": fixture.DrawnAtEnd(3, 24*time.Hour)},
		lifecycle.Terms{Chain: &chain, Witness: []fairdraw.Hash{{1}}}
}

// The release before would draw such campaigns with nothing but its secret.
func TestEvidenceIsNotTakenBackWhileADrawDependsOnIt(t *testing.T) {
	t.Parallel()
	drafts, terms := promising()
	for name, d := range drafts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			m, id := migrator(t, db), fixture.CampaignOn(t, db, d, terms)
			refused := func(when string) {
				t.Helper()
				if err := downFrom(t, m, "00018"); err == nil || !strings.Contains(err.Error(), "are not drawn yet") {
					t.Fatalf("%s: %v", when, err)
				}
				up(t, m) // those after it
				fixture.Sound(t, db)
			}
			refused("on sale")
			fixture.SellOut(t, db, id)
			if _, err := db.Exec(t.Context(), `INSERT INTO freezes (campaign_id, root, sold, record) VALUES ($1, sha256('r'), 6, '{}')`, id); err != nil {
				t.Fatal(err) // so that nothing but the rules refuses
			}
			if err := downFrom(t, m, "00018"); err == nil || !strings.Contains(err.Error(), "are not drawn yet") {
				t.Fatalf("frozen: %v", err)
			}
			up(t, m)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		db := servers.DB(t)
		m, id := migrator(t, db), fixture.CampaignOn(t, db, drafts["witness"], terms)
		cancel(t, db, id)
		if err := downFrom(t, m, "00018"); err != nil {
			t.Errorf("nothing depends on it: %v", err)
		}
		up(t, m)
	})
}

func cancel(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		var b pgx.Batch
		campaign.QueueCancel(&b, id, "operator:test", "")
		return tx.SendBatch(t.Context(), &b).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The release before freezes a campaign when it is sold out, and never later.
func TestEvidenceIsNotTakenBackBeforeAFreeze(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	m, id := migrator(t, db), fixture.Campaign(t, db, fixture.Draft(3))
	ref := fixture.SellOut(t, db, id)
	if err := downFrom(t, m, "00018"); err == nil || !strings.Contains(err.Error(), "not frozen yet") {
		t.Fatalf("not frozen: %v", err)
	}
	up(t, m) // what is newer was taken back before
	fixture.Sound(t, db)
	drawer := draw.NewDrawer(db, fixture.Key(t), config.Draw{Lease: time.Hour, Timeout: servers.Patience}, draw.Options{}, servers.Logger(t))
	if _, err := drawer.Run(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if err := downFrom(t, m, "00018"); err != nil {
		t.Errorf("drawn: %v", err)
	}
	up(t, m)
	fixture.Sound(t, db)
}

// publishAsBefore does what an api of the release before did to publish a campaign.
func publishAsBefore(t *testing.T, db *pgxpool.Pool, id uuid.UUID) error {
	t.Helper()
	rules, err := fairdraw.NewRules(id, shape.Triangle(3), []fairdraw.Prize{{Number: 1, Layer: 1, Name: "A prize"}}, nil).Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `UPDATE campaigns SET state = 'active', published_at = clock_timestamp() WHERE id = $1 AND state = 'pending'`, id); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `INSERT INTO commitments (campaign_id, rules, commitment, sealed_secret) VALUES ($1, $2, sha256('c'), 'sealed')`, id, string(rules))
		return err
	})
}

func TestTheReleaseBeforePublishesNoCampaignWhosePoliciesItsRulesLack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	drafts, _ := promising()
	drafts["nothing"] = fixture.Draft(3)
	onlyWitness := fixture.Draft(3) // no draft passes with it: each condition is looked at alone
	onlyWitness.Policies.Witness = true
	drafts["a witness alone"] = onlyWitness
	for name, d := range drafts {
		id := uuidv7.New()
		if err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error { return campaign.Create(t.Context(), tx, id, d) }); err != nil {
			t.Fatal(err)
		}
		err, want := publishAsBefore(t, db, id), campaign.Pending
		if name == "nothing" {
			want = campaign.Active
			if err != nil {
				t.Errorf("policies that promise nothing: %v", err)
			}
		} else if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.ConstraintName != "commitments_keep_their_policies" {
			t.Errorf("%s: %v", name, err)
		}
		if c, err := campaign.Get(t.Context(), db, id); err != nil || c.State != want {
			t.Errorf("%s: it is %s, %v", name, c.State, err)
		}
	}
}
