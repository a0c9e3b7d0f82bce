package wallet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/maintenance/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// made makes a wallet in yen with a balance.
func madeWallet(t *testing.T, db *pgxpool.Pool, balance money.Amount) uuid.UUID {
	return madeIn(t, db, "JPY", balance)
}

func madeIn(t *testing.T, db *pgxpool.Pool, currency string, balance money.Amount) uuid.UUID {
	t.Helper()
	owner := wallet.Owner{ID: uuid.NewString(), Currency: currency}
	var id uuid.UUID
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		created, err := wallet.Create(t.Context(), tx, []wallet.Opening{{Owner: owner}})
		id = created[owner].ID
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if balance > 0 {
		with(t, db, wallet.Wanted{Wallets: []uuid.UUID{id}}, func(u *wallet.UnitOfWork) { must(t)(u.Credit(id, wallet.Movement{Amount: balance})) })
	}
	return id
}

// with lets do use a unit on wallets, and writes and commits what it decides.
func with(t *testing.T, db *pgxpool.Pool, want wallet.Wanted, do func(u *wallet.UnitOfWork)) {
	t.Helper()
	if err := try(t, db, want, do); err != nil {
		t.Fatal(err)
	}
}

func try(t *testing.T, db *pgxpool.Pool, want wallet.Wanted, do func(u *wallet.UnitOfWork)) error {
	t.Helper()
	return postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		u, err := wallet.Open(t.Context(), tx, want, postgres.WaitForLocks)
		if err != nil {
			return err
		}
		do(u)
		return u.Write(t.Context(), tx)
	})
}

// on is with for wallets alone.
func on(t *testing.T, db *pgxpool.Pool, do func(u *wallet.UnitOfWork), ids ...uuid.UUID) {
	t.Helper()
	with(t, db, wallet.Wanted{Wallets: ids}, do)
}

func must(t *testing.T) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
}

// refused expects a refusal.
func refused(t *testing.T, want fault.Code) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if code := fault.CodeOf(err); code != want {
			t.Errorf("got %q (%v), want %s", code, err, want)
		}
	}
}

// expect compares a wallet with what it should have.
func expectWallet(t *testing.T, db *pgxpool.Pool, id uuid.UUID, balance, held money.Amount, version int64) {
	t.Helper()
	w, err := wallet.Get(t.Context(), db, access.Everything(), id)
	if err != nil {
		t.Fatal(err)
	}
	if w.Balance != balance || w.Held != held || w.Version != version {
		t.Errorf("the wallet has %d, %d held, version %d; want %d, %d, %d", w.Balance, w.Held, w.Version, balance, held, version)
	}
}

// authorized holds money in a wallet and returns the authorization.
func authorized(t *testing.T, db *pgxpool.Pool, id uuid.UUID, amount money.Amount) (a wallet.Authorization) {
	t.Helper()
	on(t, db, func(u *wallet.UnitOfWork) {
		var err error
		if a, err = u.Authorize(id, wallet.Movement{Amount: amount}, time.Hour); err != nil {
			t.Error(err)
		}
	}, id)
	return a
}

// letLapse makes the time of an authorization be over.
func letLapse(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE authorizations SET created_at = created_at - interval '2 hours', expires_at = expires_at - interval '2 hours' WHERE id = $1`, id)
}

// soundButForPurchases is fixture.Sound for wallets that paid for purchases which
// are not there: this package knows of none.
func soundButForPurchases(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	violations, err := audit.Check(t.Context(), db, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		if !strings.HasPrefix(v.Invariant, "what a wallet paid for a purchase") {
			t.Errorf("broken: %s: %s", v.Invariant, v.Subject)
		}
	}
}
