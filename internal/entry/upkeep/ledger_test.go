package upkeep_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// damages are what each invariant of the ledger must find. $1 is a wallet with a
// snapshot, a transfer, and an authorization of which a part is captured.
var damages = []struct {
	invariant string // a part of its name
	sql       string
}{
	{"what its events add up to", `UPDATE wallets SET balance = balance + 1 WHERE id = $1`},
	{"what its events add up to", `UPDATE wallets SET held = held - 1 WHERE id = $1`},
	{"what its events add up to", `UPDATE wallets SET version = version + 1 WHERE id = $1`},
	{"versions have no gap", `UPDATE wallet_events SET version = version + 1000 WHERE wallet_id = $1 AND version = 2`},
	{"less than nothing", `UPDATE wallet_events SET delta_balance = -999999 WHERE wallet_id = $1 AND version = 2`},
	{"exactly its event", `DELETE FROM wallet_events WHERE wallet_id = $1 AND version = 3`},
	{"no event is without an entry", `INSERT INTO wallet_events SELECT $1::uuid, 1 + max(version), gen_random_uuid(), 1, 0 FROM wallet_events WHERE wallet_id = $1`},
	{"exactly its event", `UPDATE wallet_events SET delta_balance = delta_balance + 1 WHERE wallet_id = $1 AND version = 1`},
	{"exactly its event", `UPDATE ledger_entries SET amount = amount + 1 WHERE kind = 'transfer' AND debit_wallet = $1`},
	{"a snapshot", `UPDATE wallet_snapshots SET balance = balance + 1 WHERE wallet_id = $1`},
	{"a snapshot", `UPDATE wallet_snapshots SET version = version - 1 WHERE wallet_id = $1`},
	{"zero together", `UPDATE ledger_entries SET amount = amount + 1 WHERE kind = 'credit' AND credit_wallet = $1 AND reference = (SELECT min(reference) FROM ledger_entries WHERE credit_wallet = $1)`},
	{"zero together", `UPDATE wallets SET balance = balance + 1 WHERE id = $1`},
	{"in the currency", `UPDATE wallets SET currency = 'EUR' WHERE id = $1`},
	{"in the currency", `DELETE FROM wallets WHERE id = $1`},
	{"active authorizations have left", `UPDATE authorizations SET captured = captured + 1 WHERE wallet_id = $1`},
	{"active authorizations have left", `UPDATE wallets SET held = held - 1 WHERE id = $1`},
	{"what its entries made of it", `UPDATE authorizations SET captured = captured + 1 WHERE wallet_id = $1`},
	{"what its entries made of it", `UPDATE authorizations SET state = 'expired', ended_at = now() WHERE wallet_id = $1`},
	{"what its entries made of it", `DELETE FROM authorizations WHERE wallet_id = $1`},
}

func TestTheAuditFindsWhatIsWrongWithMoney(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := rich(t, db)
	fixture.Sound(t, db)
	for _, d := range damages {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"ledger_entries", "wallet_events"} {
			servers.Exec(t, tx, `ALTER TABLE `+table+` DISABLE TRIGGER USER`)
		}
		if tag, err := tx.Exec(t.Context(), d.sql, id); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %d rows, %v", d.sql, tag.RowsAffected(), err)
		}
		violations, err := checkIn(t.Context(), tx)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(violations, func(v audit.Violation) bool { return strings.Contains(v.Invariant, d.invariant) }) {
			t.Errorf("%s: found %v, want %q", d.sql, violations, d.invariant)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// rich makes a wallet with rows for every invariant.
func rich(t *testing.T, db *pgxpool.Pool) uuid.UUID {
	t.Helper()
	owners := []wallet.Owner{{ID: "alice", Currency: "JPY"}, {ID: "bob", Currency: "JPY"}}
	var id uuid.UUID
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		created, err := wallet.Create(t.Context(), tx, []wallet.Opening{{Owner: owners[0]}, {Owner: owners[1]}})
		if err != nil {
			return err
		}
		id = created[owners[0]].ID
		b, err := wallet.Open(t.Context(), tx, wallet.Wanted{Wallets: []uuid.UUID{id, created[owners[1]].ID}}, postgres.WaitForLocks)
		if err != nil {
			return err
		}
		for range wallet.SnapshotEvery {
			if _, err := b.Credit(id, wallet.Movement{Amount: 100}); err != nil {
				return err
			}
		}
		if _, err := b.Transfer(id, created[owners[1]].ID, wallet.Movement{Amount: 7}); err != nil {
			return err
		}
		a, err := b.Authorize(id, wallet.Movement{Amount: 50}, time.Hour)
		if err != nil {
			return err
		}
		if _, err := b.Capture(id, a.ID, wallet.Movement{Amount: 20}); err != nil {
			return err
		}
		return b.Write(t.Context(), tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
