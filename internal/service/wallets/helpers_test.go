package wallets_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/service/wallets"
	"triprize/internal/store/job"
	"triprize/internal/store/wallet"
	"triprize/internal/testkit/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// command is a deed under a fresh key.
func command(deed wallets.Deed) wallets.Command { return keyed(uuid.NewString(), deed) }

// keyed is a deed under a key; its hash is that of the deed.
func keyed(key string, deed wallets.Deed) wallets.Command {
	return wallets.Command{Deed: deed, Request: job.Request{ID: job.NewID(), Client: "shop", Key: key,
		Hash: sha256.Sum256(fmt.Appendf(nil, "%T %+v", deed, deed)), Kind: "wallet", Keep: time.Hour}}
}

func amount(n int64) wallets.Details { return wallets.Details{Amount: n} }

func do(t *testing.T, at *wallets.Teller, commands ...wallets.Command) []job.Done {
	t.Helper()
	done, err := at.Do(t.Context(), commands)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// one does a deed and returns what it came to.
func one(t *testing.T, at *wallets.Teller, deed wallets.Deed) job.Done {
	t.Helper()
	return do(t, at, command(deed))[0]
}

// made opens a wallet in yen.
func made(t *testing.T, at *wallets.Teller, balance int64) uuid.UUID {
	t.Helper()
	return read[wallets.Wallet](t, one(t, at, wallets.Open{Owner: wallet.Owner{ID: uuid.NewString(), Currency: "JPY"}, InitialBalance: balance})).ID
}

// read returns the document of an answer.
func read[T any](t *testing.T, d job.Done) (document T) {
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
func codeOf(d job.Done) fault.Code {
	if d.Err != nil {
		return fault.CodeOf(d.Err)
	}
	if d.Job.Problem != nil {
		return d.Job.Problem.Code
	}
	return ""
}

func expect(t *testing.T, db *pgxpool.Pool, id uuid.UUID, balance, held, version int64) {
	t.Helper()
	w, err := wallet.Get(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
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

func exec(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// lapse makes the time of every active authorization of a wallet be over.
func lapse(t *testing.T, db *pgxpool.Pool, walletID uuid.UUID) {
	t.Helper()
	exec(t, db, `UPDATE authorizations SET created_at = created_at - interval '2 hours', expires_at = expires_at - interval '2 hours'
		WHERE wallet_id = $1 AND state = 'active'`, walletID)
}
