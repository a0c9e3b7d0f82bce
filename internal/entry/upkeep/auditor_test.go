package upkeep_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/entry/upkeep"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// run gives every walk a turn.
func run(t *testing.T, db *pgxpool.Pool, log *servers.Journal) sweep.Counts {
	t.Helper()
	servers.Exec(t, db, `UPDATE audit_walks SET resume_at = clock_timestamp()`) // ends their pauses
	done, err := upkeep.NewAuditor(db, slog.New(slog.NewTextHandler(log, nil))).Run(t.Context())
	servers.NoError(t, err)
	return done
}

// stored returns how many violations of counters are stored, or -1: nobody has looked.
func stored(t *testing.T, db *pgxpool.Pool) int {
	t.Helper()
	states, err := audit.States(t.Context(), db)
	servers.NoError(t, err)
	for _, s := range states {
		if s.Check == "counters" {
			return s.Violations
		}
	}
	return -1
}

// Nothing tells that the campaign has changed: no job names it. The walk comes by it in its
// order, and it is looked at again before the next round.
func TestWhatIsWrongWithACampaignThatHasNotChangedIsFoundAndKeptUntilItIsGone(t *testing.T) {
	t.Parallel()
	db, log := servers.DB(t), &servers.Journal{}
	var last uuid.UUID
	for range 21 {
		last = fixture.Campaign(t, db, fixture.Draft(3))
	}
	servers.Exec(t, db, `DELETE FROM jobs`)
	servers.Exec(t, db, `UPDATE campaigns SET positions_sold = 2 WHERE id = $1`, last)
	if n := stored(t, db); n != -1 {
		t.Errorf("before the first look %d are stored", n)
	}
	for turn, want := range []struct{ found, gone, stored int }{{0, 0, 0}, {1, 0, 1}, {0, 0, 1}, {0, 1, 0}} {
		if turn == 3 {
			servers.Exec(t, db, `UPDATE campaigns SET positions_sold = 0 WHERE id = $1`, last)
			servers.Exec(t, db, `UPDATE audit_violations SET seen_at = seen_at - interval '1 minute'`)
		}
		done := run(t, db, log)
		if done["found"] != want.found || done["gone"] != want.gone || stored(t, db) != want.stored {
			t.Errorf("turn %d: %+v, %d stored", turn, done, stored(t, db))
		}
		text := log.Take()
		if strings.Count(text, "level=ERROR") != want.found || strings.Count(text, "level=INFO") != want.gone {
			t.Errorf("turn %d: %s", turn, text)
		}
		if want.stored == 0 {
			continue
		}
		all, err := audit.ListStored(t.Context(), db)
		if err != nil || len(all) != 1 || all[0].ID != last || all[0].Walk != "campaigns" || !strings.Contains(all[0].Subjects[0], "counts 2 sold") {
			t.Errorf("turn %d: stored %+v, %v", turn, all, err)
		}
	}
}

// When as much is stored as ever is, what is still wrong counts as seen: otherwise the recheck would come to no other.
func TestWhatIsStillWrongIsSeenAlthoughNoMoreIsStored(t *testing.T) {
	t.Parallel()
	db, log := servers.DB(t), &servers.Journal{}
	id := fixture.Campaign(t, db, fixture.Draft(3))
	servers.Exec(t, db, `UPDATE campaigns SET positions_sold = 2 WHERE id = $1`, id)
	run(t, db, log)
	servers.Exec(t, db, `UPDATE audit_violations SET seen_at = seen_at - interval '1 hour'`)
	servers.Exec(t, db, `INSERT INTO audit_violations (walk, id, invariant, subjects) SELECT 'wallets', gen_random_uuid(), 'wallets', '{a}' FROM generate_series(1, 200)`)
	if run(t, db, log); servers.Value[bool](t, db, `SELECT seen_at < clock_timestamp() - interval '30 minutes' FROM audit_violations WHERE id = $1 AND invariant = 'counters'`, id) {
		t.Error("a violation that stands was not noted as seen")
	}
}

// A violation is stored with the campaign that it is of, whatever else is in the part.
func TestWhatIsWrongBelongsToOneOfAPart(t *testing.T) {
	t.Parallel()
	db, log := servers.DB(t), &servers.Journal{}
	var ids [4]uuid.UUID
	for i := range ids {
		ids[i] = fixture.Campaign(t, db, fixture.Draft(3))
	}
	for _, id := range ids[1:3] {
		servers.Exec(t, db, `UPDATE campaigns SET positions_sold = 2 WHERE id = $1`, id)
	}
	run(t, db, log)
	all, err := audit.ListStored(t.Context(), db)
	if err != nil || len(all) != 2 {
		t.Fatalf("stored %+v, %v", all, err)
	}
	for _, one := range all {
		if !slices.Contains(ids[1:3], one.ID) || len(one.Subjects) != 1 || !strings.Contains(one.Subjects[0], one.ID.String()) {
			t.Errorf("stored %+v", one)
		}
	}
}

// What a part leaves out is no violation: the other wallet of a transfer, the other campaigns of a buyer.
func TestEachPartOfASoundSystemIsSoundByItself(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	rich(t, db)
	fixture.Wallet(t, db, "rich", 1_000_000)
	for range 2 {
		id := fixture.Campaign(t, db, fixture.Draft(12))
		fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldAnyRequest(id, "otto", 0, 1))
		fixture.Reserve(t, db, id, "otto", 1, time.Hour)
		servers.NoError(t, sellAndTakeBack(t, db, fixture.Seller(db), id))
	}
	fixture.Sound(t, db)
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		broken, err := inParts(t.Context(), tx, 1)
		for check, is := range broken {
			if is {
				t.Errorf("%s is said to be broken", check)
			}
		}
		return err
	})
	servers.NoError(t, err)
}

// To repeat a draw takes several queries. A campaign that is cancelled meanwhile is no violation.
func TestADrawIsRepeatedAsOfOneMoment(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	const paused = `SELECT count(*) FROM campaigns WHERE paused_at IS NOT NULL`
	redo := func(_ context.Context, tx pgx.Tx, of uuid.UUID) (wrong string, err error) {
		servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, of)
		if n := servers.Value[int](t, tx, paused); n != 0 || of != id {
			t.Errorf("it sees what was done since: %d campaigns are paused", n)
		}
		return "", nil
	}
	walk := audit.Walk{Name: "campaigns", Next: `SELECT id FROM campaigns WHERE id > $1 ORDER BY id`, Parts: `none AS (SELECT)`,
		Invariants: []audit.Invariant{{Check: "redo", SQL: `SELECT unnest($2::uuid[])::text`, Redo: redo}}}
	_, err := audit.NewAuditor(db, []audit.Walk{walk}, servers.Logger(t)).Run(t.Context())
	if err != nil || servers.Value[int](t, db, paused) != 1 {
		t.Error(err)
	}
}

// Of several auditors one has the turn of a walk, and none before its pause is over.
func TestAWalkHasNoTurnBeforeItsPauseIsOver(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	if first := run(t, db, &servers.Journal{}); first["passes"] != 7 {
		t.Fatalf("%+v", first)
	}
	servers.Exec(t, db, `UPDATE audit_walks SET resume_at = clock_timestamp() + CASE walk WHEN 'jobs' THEN interval '0' ELSE interval '1 hour' END`)
	if then, err := upkeep.NewAuditor(db, servers.Logger(t)).Run(t.Context()); err != nil || then["passes"] != 1 {
		t.Errorf("%+v, %v", then, err)
	}
}

// An invariant that cannot be checked leaves the others, and is not noted as checked.
func TestAnInvariantThatCannotBeCheckedLeavesTheOthers(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	fixture.Campaign(t, db, fixture.Draft(3))
	servers.Exec(t, db, `ALTER TABLE layers RENAME COLUMN first_number TO number`) // one reads it
	done, err := upkeep.NewAuditor(db, servers.Logger(t)).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "layers: ") || done["unchecked"] != 1 || done["passes"] != 7 {
		t.Errorf("%+v, %v", done, err)
	}
	if looked := servers.Value[string](t, db, `SELECT string_agg(invariant, ' ') FROM audit_checks WHERE invariant IN ('layers', 'counters', 'wallets')`); !strings.Contains(looked, "counters") {
		t.Errorf("looked at %s", looked)
	}
}

// Looks see one snapshot each, so nothing is half done for them.
func TestLooksAtASystemThatSellsFindNothing(t *testing.T) {
	t.Parallel()
	db, log := servers.DB(t), &servers.Journal{}
	id, seller := fixture.Campaign(t, db, fixture.Draft(12)), fixture.Seller(db)
	fixture.Wallet(t, db, "rich", 1_000_000)
	sold := make(chan error, 1)
	go func() { sold <- sellAndTakeBack(t, db, seller, id) }()
	looks, selling := 0, true
	for selling {
		select {
		case err := <-sold:
			if selling = false; err != nil {
				t.Fatal(err)
			}
		default:
		}
		if done := run(t, db, log); done["found"] > 0 {
			t.Fatal(log)
		}
		looks++
	}
	t.Log(looks, "looks")
	fixture.Sound(t, db)
}

func sellAndTakeBack(t *testing.T, db *pgxpool.Pool, seller *sale.Seller, id uuid.UUID) error {
	for i := range 30 {
		refs := fixture.Accept(t, db, fixture.WalletRequest(t, id, "rich", 0, 1), fixture.PurchaseRequest(t, id, fmt.Sprint("buyer", i), 0, 1))
		if _, err := seller.Sell(t.Context(), refs, sale.WaitForCampaign); err != nil {
			return err
		}
		purchases, err := db.Query(t.Context(), `SELECT id FROM purchases WHERE state = 'completed' ORDER BY id DESC LIMIT 1`)
		if err != nil {
			return err
		}
		bought, err := pgx.CollectOneRow(purchases, pgx.RowTo[uuid.UUID])
		if err != nil {
			return err
		}
		if _, err := seller.Cancel(t.Context(), fixture.Accept(t, db, fixture.CancelRequest(t, id, bought)), sale.WaitForCampaign); err != nil {
			return errors.Join(err)
		}
	}
	return nil
}
