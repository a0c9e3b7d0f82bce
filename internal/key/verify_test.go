package key_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/key"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// nothing is what a key has made.
func nothing(context.Context, pgx.Tx, string, string) (int, error) { return 0, nil }

func revoke(t *testing.T, db *pgxpool.Pool, prefix string) {
	t.Helper()
	_, _, err := key.Revoke(t.Context(), db, prefix, "", nothing)
	servers.NoError(t, err)
}

func verifier(t *testing.T, db postgres.DB, ttl time.Duration) *key.Verifier {
	v := key.NewVerifier(db, ttl)
	t.Cleanup(v.Close)
	return v
}

// counted counts the queries of a database.
type counted struct {
	postgres.DB
	queries atomic.Int64
}

func (c *counted) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.queries.Add(1)
	return c.DB.Query(ctx, sql, args...)
}

func TestNobodyLearnsWhichPartOfAKeyWasRight(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	good, prefix, secret := create(t, db, key.App, "shop")
	_, otherPrefix, otherSecret := create(t, db, key.App, "other")
	revokedText, revokedPrefix, _ := create(t, db, key.App, "gone")
	revoke(t, db, revokedPrefix)
	asked := &counted{DB: db}
	v := verifier(t, asked, time.Minute)
	zeros := strings.Repeat("0", 64)
	for _, text := range []string{"tp_" + strings.Repeat("\xff", 12) + "_" + zeros, "tp_00000000000\x00_" + zeros, "tp_00000000000G_" + zeros, "tp_000000000000_" + strings.Repeat("\xff", 64),
		"tp_' OR '1'='1_" + zeros, "TP_000000000000_" + zeros, "tp_000000000000_" + zeros + "\n", "\x00", "malformed", "tp_0_" + zeros, "tp_000000000000_0",
		"tp_" + strings.Repeat("0", 1000) + "_" + zeros, strings.Repeat("tp_", 1000), "", "tp_" + prefix, "tp_" + prefix + "_", good[:len(good)-1], good + "0", good + "_", " " + good + " ",
		"tp_" + prefix[1:] + "_" + secret, "tp_0" + prefix + "_" + secret, "sk_" + prefix + "_" + secret, prefix + "_" + secret, "tp_" + prefix + "_" + strings.ToUpper(secret)} {
		_, err := v.Verify(t.Context(), text)
		refused(t, text, err)
	}
	if n := asked.queries.Load(); n != 0 {
		t.Errorf("%d queries for what is no key", n)
	}
	for range 2 { // the second time from memory
		for what, text := range map[string]string{
			"an unknown prefix":         "tp_" + strings.Repeat("0", 12) + "_" + secret,
			"a wrong secret":            "tp_" + prefix + "_" + strings.Repeat("0", 64),
			"the secret of another key": "tp_" + prefix + "_" + otherSecret,
			"the prefix of another key": "tp_" + otherPrefix + "_" + secret,
			"a revoked key":             revokedText,
		} {
			k, err := v.Verify(t.Context(), text)
			refused(t, what, err)
			if k.Prefix != "" || k.Client != "" {
				t.Errorf("%s: got %+v", what, k)
			}
		}
	}
	if _, err := v.Verify(t.Context(), good); err != nil {
		t.Errorf("the good key: %v", err)
	}
}

func TestARevokedKeyStopsWhenItIsForgottenHoweverOftenItIsUsed(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, ttl := range []time.Duration{0, 200 * time.Millisecond} {
		text, prefix, _ := create(t, db, key.App, "shop")
		v := verifier(t, db, ttl)
		if _, err := v.Verify(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		revoke(t, db, prefix)
		if ttl > 0 {
			servers.Eventually(t, "the revoked key is refused", func() bool {
				_, err := v.Verify(t.Context(), text) // each use comes sooner than a key is forgotten
				return err != nil
			})
		}
		_, err := v.Verify(t.Context(), text)
		refused(t, "the revoked key", err)
	}
}

func TestAKnownKeyAsksTheDatabaseOnlyOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	known, _, secret := create(t, db, key.App, "shop")
	unasked, _, _ := create(t, db, key.App, "shop")
	v := verifier(t, db, time.Hour)
	if _, err := v.Verify(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	var flood sync.WaitGroup
	for from := range 500 { // at once; each asks for many prefixes, one after the other
		flood.Go(func() {
			for i := from; i <= key.Cached; i += 500 {
				_, err := v.Verify(t.Context(), fmt.Sprintf("tp_%012x_%s", i, secret))
				refused(t, "an invented key", err)
			}
		})
	}
	flood.Wait()
	db.Close()
	if k, err := v.Verify(t.Context(), known); err != nil || k.Client != "shop" {
		t.Errorf("without the database: %+v, %v", k, err)
	}
	_, err := v.Verify(t.Context(), strings.Replace(known, secret, strings.Repeat("0", 64), 1))
	refused(t, "a wrong secret for a known prefix", err)
	// A key that cannot be looked up is not called unknown: the client should try again.
	if _, err := v.Verify(t.Context(), unasked); err == nil || fault.CodeOf(err) == fault.Unauthenticated {
		t.Errorf("a key that cannot be looked up: %v", err)
	}
}

func TestAnUnknownPrefixIsRememberedForAMoment(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	text, prefix, _ := create(t, db, key.App, "shop")
	move := func(from, to string) {
		t.Helper()
		tag, err := db.Exec(t.Context(), `UPDATE api_keys SET prefix = $2 WHERE prefix = $1`, from, to)
		if err != nil || tag.RowsAffected() != 1 {
			t.Fatal(tag, err)
		}
	}
	asked := &counted{DB: db}
	v := verifier(t, asked, time.Hour)
	move(prefix, "elsewhere")
	began := time.Now()
	for range 50 {
		_, err := v.Verify(t.Context(), text)
		refused(t, "a prefix that is not there", err)
	}
	if n, most := asked.queries.Load(), 1+int64(time.Since(began)/time.Second); n > most {
		t.Errorf("%d queries for one unknown prefix, want at most %d", n, most)
	}
	move("elsewhere", prefix)
	servers.Eventually(t, "a key that was made meanwhile works", func() bool {
		_, err := v.Verify(t.Context(), text)
		return err == nil
	})
}

// gated holds queries back until it is opened.
type gated struct {
	counted
	open chan struct{}
}

func (g *gated) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := g.counted.Query(ctx, sql, args...)
	<-g.open
	return rows, err
}

func TestAFloodOfInventedKeysCostsFewQueriesAndHidesNoRealOne(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	text, _, secret := create(t, db, key.App, "shop")
	asked := &gated{counted: counted{DB: db}, open: make(chan struct{})}
	v := verifier(t, asked, time.Hour)
	const flood = 500
	var all sync.WaitGroup
	all.Go(func() {
		_, err := v.Verify(t.Context(), fmt.Sprintf("tp_%012x_%s", flood, secret))
		refused(t, "the first", err)
	})
	servers.Eventually(t, "the first is looked up", func() bool { return asked.queries.Load() == 1 })
	for i := range flood {
		all.Go(func() {
			_, err := v.Verify(t.Context(), fmt.Sprintf("tp_%012x_%s", i, secret))
			refused(t, "an invented key", err)
		})
	}
	all.Go(func() {
		if _, err := v.Verify(t.Context(), text); err != nil {
			t.Errorf("the real key among them: %v", err)
		}
	})
	servers.Eventually(t, "all others wait", func() bool { return v.Waiting() == flood+1 })
	close(asked.open)
	all.Wait()
	if n := asked.queries.Load(); n > 3 {
		t.Errorf("%d queries for %d keys", n, flood+2)
	}
}

func TestAWatchedKeyIsHeardToBeRevokedAndNobodyWatchingCostsNothing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	_, good, _ := create(t, db, key.App, "shop")
	_, bad, _ := create(t, db, key.App, "shop")
	asked := &counted{DB: db}
	v := verifier(t, asked, time.Second)
	if n := asked.queries.Load(); n != 0 {
		t.Errorf("%d queries before anybody watches", n)
	}
	var goods, bads atomic.Int64
	stop := v.Watch(good, func() { goods.Add(1) })
	v.Watch(good, func() { goods.Add(1) })()
	for range 3 {
		defer v.Watch(bad, func() { bads.Add(1) })()
	}
	revoke(t, db, bad)
	servers.Eventually(t, "all who watch the key hear of it", func() bool { return bads.Load() == 3 })
	looks := asked.queries.Load()
	servers.Eventually(t, "it is looked again", func() bool { return asked.queries.Load() > looks+1 })
	if goods.Load() != 0 || bads.Load() != 3 {
		t.Errorf("%d calls about the good key, %d about the revoked one", goods.Load(), bads.Load())
	}
	stop()
}
