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
	if err != nil {
		t.Fatal(err)
	}
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

// last returns the keys of the last write.
func (l *ledger) last() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.writes[len(l.writes)-1]))
}

func (l *ledger) count() int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.writes)
}

// writesOf counts the writes that name a key.
func (l *ledger) writesOf(key string) (n int) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, keys := range l.writes {
		if slices.Contains(keys, key) {
			n++
		}
	}
	return n
}

func TestHoweverOftenAKeyIsUsedAProcessWritesItOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := new(ledger)
		u := key.NewUses(db)
		const minutes = 30
		for range minutes * 60 * 10 { // ten times a second
			u.Note("a")
			u.Note("b")
			time.Sleep(time.Second / 10)
		}
		for _, key := range []string{"a", "b"} {
			if n := db.writesOf(key); n < minutes-2 || n > minutes+1 { // it may wait for a pause
				t.Errorf("%s: %d writes in %d minutes", key, n, minutes)
			}
		}
		time.Sleep(time.Minute)
		idle := db.count()
		time.Sleep(24 * time.Hour)
		if u.Close(); db.count() != idle {
			t.Error("it writes without uses")
		}
		u.Note("a")
		time.Sleep(time.Hour)
		if db.count() != idle {
			t.Error("it writes after its end")
		}
	})
}

func TestKeysThatAreUsedOneAfterTheOtherShareWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := new(ledger)
		u := key.NewUses(db)
		const keys = 600
		for i := range keys { // a minute
			u.Note(time.Duration(i).String())
			time.Sleep(time.Second / 10)
		}
		u.Close()
		if n := db.count(); n > 14 {
			t.Errorf("%d writes in a minute", n)
		}
		written := make(map[string]bool)
		for _, keys := range db.writes {
			for _, key := range keys {
				written[key] = true
			}
		}
		if len(written) != keys {
			t.Errorf("%d keys are written of %d", len(written), keys)
		}
	})
}

func TestUsesThatCannotBeWrittenAreKeptAndBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &ledger{away: true}
		u := key.NewUses(db)
		u.Note("first")
		if n := db.count(); n != 1 {
			t.Errorf("%d writes of the first use", n)
		}
		for i := range key.UsesKept + 500 {
			u.Note(time.Duration(i).String())
		}
		if n := u.Kept(); n != key.UsesKept {
			t.Errorf("%d keys are kept, want %d", n, key.UsesKept)
		}
		time.Sleep(10 * time.Minute)
		if n := db.count(); n > 10*12+1 {
			t.Errorf("%d writes in ten minutes of an outage", n)
		}
		db.setAway(false)
		time.Sleep(2 * time.Minute)
		if last := db.last(); len(last) != key.UsesKept || !slices.Contains(last, "first") {
			t.Errorf("%d keys are written after the outage", len(last))
		}
		if u.Kept() != 0 {
			t.Error("they are kept all the same")
		}
		u.Close()
	})
}
