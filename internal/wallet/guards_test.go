package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// A wallet whose balance is not what its events add up to is not changed. The others
// of the same unit are.
func TestABrokenWalletFailsAlone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, damage := range map[string]string{
		"a balance":     `UPDATE wallets SET balance = balance + 1 WHERE id = $1`,
		"what it holds": `UPDATE wallets SET held = held + 1 WHERE id = $1`,
		"a version":     `UPDATE wallets SET version = version + 1 WHERE id = $1`,
		"a snapshot":    `INSERT INTO wallet_snapshots VALUES ($1, 1, 11, 0)`,
		"a gap":         `INSERT INTO wallet_events VALUES ($1, 3, gen_random_uuid(), 0, 0 + 1)`,
	} {
		broken, sound := withBalance(t, db, 10), withBalance(t, db, 10)
		servers.Exec(t, db, damage, broken)
		on(t, db, func(u *wallet.UnitOfWork) {
			if _, err := u.Debit(broken, wallet.Movement{Amount: 1}); !errors.Is(err, wallet.ErrBroken) {
				t.Errorf("%s: %v", name, err)
			}
			must(t)(u.Debit(sound, wallet.Movement{Amount: 1}))
		}, broken, sound)
		expect(t, db, sound, 9, 0, 2)
	}
}

// A writer without the lock breaks the rule. Then the whole unit fails.
func TestRowsThatMoveUnderTheLockRollTheBookBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, disturb := range map[string]string{
		"the read model":   `UPDATE wallets SET version = version + 1 WHERE id = $1`,
		"the events":       `INSERT INTO wallet_events VALUES ($1, 3, gen_random_uuid(), 1, 0)`,
		"an authorization": `UPDATE authorizations SET captured = 1 WHERE wallet_id = $1`,
		"its end":          `UPDATE authorizations SET state = 'voided', ended_at = now() WHERE wallet_id = $1`,
	} {
		id := withBalance(t, db, 10)
		a := authorized(t, db, id, 5)
		err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			u, err := wallet.Open(t.Context(), tx, wallet.ReadSet{Wallets: []uuid.UUID{id}, Authorizations: []uuid.UUID{a.ID}}, postgres.WaitForLocks)
			if err != nil {
				return err
			}
			if _, err := u.Capture(id, a.ID, wallet.Movement{}); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), disturb, id); err != nil {
				return err
			}
			return u.Write(t.Context(), tx)
		})
		if !wallet.Lost(err) {
			t.Errorf("%s moved: %v", name, err)
		}
		expect(t, db, id, 10, 5, 2)
	}
	if wallet.Lost(errors.New("another")) || wallet.Lost(&pgconn.PgError{Code: "23505", ConstraintName: "wallets_pkey"}) {
		t.Error("any error is a lost race")
	}
	fixture.Sound(t, db)
}

func TestTheLedgerIsAppendOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	withBalance(t, db, 10)
	for _, other := range []string{`description = 'x'`, `actor = 'operator:ops'`, `reference = 'x'`, `metadata = '{"a": "b"}'`, `description = NULL, amount = 1`} { // what an erasure makes of an entry is all that passes
		if _, err := db.Exec(t.Context(), `UPDATE ledger_entries SET `+other); err == nil {
			t.Errorf("an entry could get %s", other)
		}
	}
	for _, table := range []string{"ledger_entries", "wallet_events"} {
		column := map[string]string{"ledger_entries": "amount", "wallet_events": "delta_balance"}[table]
		for _, sql := range []string{"UPDATE %[1]s SET %[2]s = 1", "UPDATE %[1]s SET %[2]s = %[2]s + 1", "DELETE FROM %[1]s", "TRUNCATE %[1]s"} {
			sql = fmt.Sprintf(sql, table, column)
			_, err := db.Exec(t.Context(), sql)
			if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.ConstraintName != "append_only" {
				t.Errorf("%s: %v", sql, err)
			}
		}
	}
	fixture.Sound(t, db)
}

// A third transaction has the owner, or the reference, in the middle while two
// use the same ones in opposite orders. If each had its own order, both
// would wait for what the other has.
func TestOwnersAndReferencesAreTakenInOneOrder(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	create := func(_ uuid.UUID, names ...string) error {
		return postgres.InTx(context.Background(), db, func(tx pgx.Tx) error {
			var openings []wallet.NewWallet
			for _, name := range names {
				openings = append(openings, wallet.NewWallet{Owner: wallet.Owner{Client: "shop", ID: name, Currency: "JPY"}})
			}
			_, err := wallet.Create(context.Background(), tx, openings)
			return err
		})
	}
	refer := func(id uuid.UUID, names ...string) error {
		err := try(t, db, wallet.ReadSet{Wallets: []uuid.UUID{id}}, func(u *wallet.UnitOfWork) {
			for _, name := range names {
				must(t)(u.Credit(id, wallet.Movement{Amount: 1, Reference: wallet.Reference{Scope: "shop", Text: name}}))
			}
		})
		if wallet.Lost(err) { // one of the two must
			return nil
		}
		return err
	}
	for sql, do := range map[string]func(uuid.UUID, ...string) error{
		`INSERT INTO wallets (id, owner_id, client, currency) VALUES (gen_random_uuid(), 'm', 'shop', 'JPY')`: create,
		`INSERT INTO ledger_entries (id, kind, debit_account, credit_wallet, amount, currency, scope, reference, actor)
			VALUES (gen_random_uuid(), 'credit', 'funding', gen_random_uuid(), 1, 'JPY', 'shop', 'm', 'app:shop')`: refer,
	} {
		one, other := withBalance(t, db, 0), withBalance(t, db, 0)
		middle, err := db.Begin(t.Context())
		servers.NoError(t, err)
		servers.Exec(t, middle, sql)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := do(one, "a", "m", "z"); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := do(other, "z", "m", "a"); err != nil {
				t.Error(err)
			}
		})
		servers.AwaitBlocked(t, db, 2)
		if err := middle.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
	fixture.Sound(t, db)
}
