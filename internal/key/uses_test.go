package key_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/key"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// lastUsed returns when a key was last used; nil: never.
func lastUsed(t *testing.T, db *pgxpool.Pool, prefix string) *time.Time {
	t.Helper()
	for _, k := range list(t, db) {
		if k.Prefix == prefix {
			return k.LastUsedAt
		}
	}
	t.Fatal("the key is gone")
	return nil
}

func TestAKeyThatIsRefusedIsNotUsed(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	text, prefix, secret := create(t, db, key.App, "shop")
	v := key.NewVerifier(db, time.Hour)
	wrong := text[:len(text)-len(secret)] + "0000000000000000000000000000000000000000000000000000000000000000"
	_, err := v.Verify(t.Context(), wrong)
	refused(t, "a wrong secret", err)
	revoke(t, db, prefix)
	w := key.NewVerifier(db, 0)
	_, err = w.Verify(t.Context(), text)
	refused(t, "a revoked key", err)
	v.Close() // which writes what there is to write
	w.Close()
	if at := lastUsed(t, db, prefix); at != nil {
		t.Errorf("used at %s", at)
	}
}

func TestAUseIsWrittenAtTheEndOfAProcessAndOnceForAMinuteByAll(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	text, prefix, _ := create(t, db, key.App, "shop")
	_, unused, _ := create(t, db, key.App, "shop")
	use := func() {
		t.Helper()
		v := key.NewVerifier(db, time.Hour)
		if _, err := v.Verify(t.Context(), text); err != nil {
			t.Error(err)
		}
		v.Close()
	}
	use()
	if lastUsed(t, db, prefix) == nil || lastUsed(t, db, unused) != nil {
		t.Fatal("it is not written, or the other one is")
	}
	servers.Exec(t, db, `UPDATE api_keys SET last_used_at = clock_timestamp() + interval '1 minute'`) // another process has written, on however slow a machine
	ahead := lastUsed(t, db, prefix)
	use()
	if again := lastUsed(t, db, prefix); !again.Equal(*ahead) {
		t.Error("it is written twice for one minute")
	}
	servers.Exec(t, db, `UPDATE api_keys SET last_used_at = clock_timestamp() - interval '2 minutes'`)
	before := lastUsed(t, db, prefix)
	use()
	if again := lastUsed(t, db, prefix); !again.After(*before) {
		t.Error("two minutes later it is not written")
	}
}

func TestALockedKeyHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	text, prefix, _ := create(t, db, key.App, "shop")
	other, otherPrefix, _ := create(t, db, key.App, "shop")
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	servers.Exec(t, tx, `SELECT FROM api_keys WHERE prefix = $1 FOR UPDATE`, prefix)
	v := key.NewVerifier(db, time.Hour)
	for _, key := range []string{text, other} {
		if _, err := v.Verify(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	v.Close()
	if lastUsed(t, db, otherPrefix) == nil {
		t.Error("the key beside it is not written")
	}
}

// ledger is a database that only counts what is written about uses.
type ledger struct {
	postgres.DB
	mu     sync.Mutex
	writes [][]string // the keys of each write
	away   bool
}

func (l *ledger) Exec(_ context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = append(l.writes, args[0].([]string))
	if l.away {
		return pgconn.CommandTag{}, errors.New("away")
	}
	return pgconn.CommandTag{}, nil
}

func (l *ledger) setAway(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

// all returns the keys of each write.
func (l *ledger) all() [][]string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.writes)
}

// using is a Verifier on a ledger, in a bubble of time.
func using(t *testing.T, db *ledger, do func(t *testing.T, v *key.Verifier)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := key.NewVerifier(db, time.Hour)
		do(t, v)
		v.Close()
	})
}

func TestHoweverOftenAKeyIsUsedAProcessWritesItOnceAMinute(t *testing.T) {
	t.Parallel()
	db := new(ledger)
	using(t, db, func(t *testing.T, v *key.Verifier) {
		const minutes = 30
		for range minutes * 60 * 10 { // ten times a second
			v.Note("a")
			v.Note("b")
			time.Sleep(time.Second / 10)
		}
		written := slices.Concat(db.all()...)
		for _, key := range []string{"a", "b"} {
			if n := len(written) - len(slices.DeleteFunc(slices.Clone(written), func(one string) bool { return one == key })); n < minutes-3 || n > minutes+1 { // it may wait for a pause
				t.Errorf("%s: %d writes in %d minutes", key, n, minutes)
			}
		}
		time.Sleep(time.Minute)
		idle := len(db.all())
		if time.Sleep(24 * time.Hour); len(db.all()) != idle {
			t.Error("it writes without uses")
		}
	})
}

func TestKeysThatAreUsedOneAfterTheOtherShareWrites(t *testing.T) {
	t.Parallel()
	db := new(ledger)
	const keys = 600
	using(t, db, func(_ *testing.T, v *key.Verifier) {
		for i := range keys { // a minute
			v.Note(time.Duration(i).String())
			time.Sleep(time.Second / 10)
		}
	})
	if n := len(db.writes); n > 14 {
		t.Errorf("%d writes in a minute", n)
	}
	written := slices.Concat(db.writes...)
	if slices.Sort(written); len(slices.Compact(written)) != keys {
		t.Errorf("%d keys are written of %d", len(written), keys)
	}
}

func TestUsesThatCannotBeWrittenAreKeptAndBounded(t *testing.T) {
	t.Parallel()
	db := &ledger{away: true}
	using(t, db, func(t *testing.T, v *key.Verifier) {
		v.Note("first")
		if time.Sleep(6 * time.Second); len(db.all()) != 1 {
			t.Errorf("%v are written of the first use", db.all())
		}
		for i := range key.UsesKept + 500 {
			v.Note(time.Duration(i).String())
		}
		if n := v.Kept(); n != key.UsesKept {
			t.Errorf("%d keys are kept, want %d", n, key.UsesKept)
		}
		time.Sleep(10 * time.Minute)
		if n := len(db.all()); n > 10*12+1 {
			t.Errorf("%d writes in ten minutes of an outage", n)
		}
		db.setAway(false)
		time.Sleep(2 * time.Minute)
		if all := db.all(); len(all[len(all)-1]) != key.UsesKept || !slices.Contains(all[len(all)-1], "first") || v.Kept() != 0 {
			t.Errorf("%d keys are written after the outage, %d are kept all the same", len(all[len(all)-1]), v.Kept())
		}
	})
}
