package wallet_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// withBalance makes a wallet in yen with a balance.
func withBalance(t *testing.T, db *pgxpool.Pool, balance money.Amount) uuid.UUID {
	t.Helper()
	return fixture.Wallet(t, db, uuid.NewString(), balance)
}

// with lets do use a unit on wallets, and writes and commits what it decides.
func with(t *testing.T, db *pgxpool.Pool, want wallet.ReadSet, do func(u *wallet.UnitOfWork)) {
	t.Helper()
	servers.NoError(t, try(t, db, want, do))
}

func try(t *testing.T, db *pgxpool.Pool, want wallet.ReadSet, do func(u *wallet.UnitOfWork)) error {
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
	with(t, db, wallet.ReadSet{Wallets: ids}, do)
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

// soundButForPurchases is fixture.Sound for wallets that paid for purchases which
// are not there: this package knows of none.
func soundButForPurchases(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	violations, err := upkeep.Check(t.Context(), db, 5)
	servers.NoError(t, err)
	for _, v := range violations {
		if !strings.HasPrefix(v.Invariant, "what a wallet paid for a purchase") {
			t.Errorf("broken: %s: %s", v.Invariant, v.Subject)
		}
	}
}

// walletDocument is what a wallet is answered with.
type walletDocument struct {
	ID            uuid.UUID
	Balance, Held money.Amount
	Version       int64
}

type authorizationDocument struct{ ID uuid.UUID }

var documents = wallet.Documents{
	Wallet:        func(w wallet.Wallet) any { return walletDocument{w.ID, w.Balance, w.Held, w.Version} },
	Transfer:      func(e wallet.Entry) any { return e.ID },
	Authorization: func(a wallet.Authorization) any { return authorizationDocument{a.ID} },
}

// newExecutor returns an executor without locks in Redis that waits for every wallet
// until it is free.
func newExecutor(db interface {
	postgres.DB
	postgres.Beginner
}) *wallet.Executor {
	return wallet.NewExecutor(db, db, documents).Waiting(servers.Patience)
}

// executing has a test run in parallel, with an executor on a database of its own.
func executing(t *testing.T) (*pgxpool.Pool, *wallet.Executor) {
	t.Helper()
	t.Parallel()
	db := servers.DB(t)
	return db, newExecutor(db)
}

// command is an action under a fresh key.
func command(action wallet.Action) wallet.Command { return keyed(uuid.NewString(), action) }

// keyed is an action under a key; its hash is that of the action.
func keyed(key string, action wallet.Action) wallet.Command {
	return wallet.Command{Action: action, Who: access.Everything(), Request: job.Request{ID: uuidv7.New(), Client: "shop", Key: key,
		Hash: sha256.Sum256(fmt.Appendf(nil, "%T %+v", action, action)), Kind: "wallet", Retention: time.Hour}}
}

func amount(n money.Amount) wallet.Movement { return wallet.Movement{Amount: n} }

func do(t *testing.T, at *wallet.Executor, commands ...wallet.Command) []job.Accepted {
	t.Helper()
	done, err := at.Do(t.Context(), commands)
	servers.NoError(t, err)
	return done
}

// one does an action and returns what it came to.
func one(t *testing.T, at *wallet.Executor, action wallet.Action) job.Accepted {
	t.Helper()
	return do(t, at, command(action))[0]
}

// made opens a wallet in yen.
func made(t *testing.T, at *wallet.Executor, balance money.Amount) uuid.UUID {
	t.Helper()
	return read[walletDocument](t, one(t, at, wallet.Action{Owner: wallet.Owner{ID: uuid.NewString(), Currency: "JPY"}, Movement: wallet.Movement{Amount: balance}})).ID
}

// read returns the document of an answer.
func read[T any](t *testing.T, d job.Accepted) (document T) {
	t.Helper()
	if code := codeOf(d); code != "" {
		t.Errorf("refused: %s, %+v, %v", code, d.Job.Problem, d.Err)
		return document
	}
	if err := json.Unmarshal(d.Job.Result, &document); err != nil {
		t.Error(err)
	}
	return document
}

// codeOf returns why a command was refused, recorded or not.
func codeOf(d job.Accepted) fault.Code {
	if d.Err != nil {
		return fault.CodeOf(d.Err)
	}
	if d.Job.Problem != nil {
		return d.Job.Problem.Code
	}
	return ""
}

// expect compares a wallet with what it should have.
func expect(t *testing.T, db *pgxpool.Pool, id uuid.UUID, balance, held money.Amount, version int64) {
	t.Helper()
	w, err := wallet.Get(t.Context(), db, access.Everything(), id)
	servers.NoError(t, err)
	if w.Balance != balance || w.Held != held || w.Version != version {
		t.Errorf("the wallet has %d, %d held, version %d; want %d, %d, %d", w.Balance, w.Held, w.Version, balance, held, version)
	}
}

// together runs do n times at once.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// lapse makes the time of an authorization, or of all active ones of a wallet, be over.
func lapse(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE authorizations SET created_at = created_at - interval '2 hours', expires_at = expires_at - interval '2 hours'
		WHERE $1 IN (id, wallet_id) AND state = 'active'`, id)
}

func TestMain(m *testing.M) { servers.Main(m) }
