package key_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/key"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// create makes a key and returns its text and parts.
func create(t *testing.T, db *pgxpool.Pool, role key.Role, client string) (text, prefix, secret string) {
	t.Helper()
	text, err := key.Create(t.Context(), db, role, client)
	servers.NoError(t, err)
	parts := strings.Split(text, "_")
	if len(parts) != 3 {
		t.Fatalf("the key has %d parts", len(parts))
	}
	return text, parts[1], parts[2]
}

func list(t *testing.T, db *pgxpool.Pool) []key.Key {
	t.Helper()
	keys, err := key.List(t.Context(), db)
	servers.NoError(t, err)
	return keys
}

// refused fails the test unless err says no more than that the key is not good.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if code := fault.CodeOf(err); code != fault.Unauthenticated {
		t.Errorf("%s: %v", what, err)
		return
	}
	if want := "unauthenticated: the API key is not known or was revoked"; err.Error() != want {
		t.Errorf("%s: %q tells more than %q", what, err, want)
	}
}

func TestAKeyIsKnownByItsText(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	shop, shopPrefix, shopSecret := create(t, db, key.App, "shop")
	ops, opsPrefix, opsSecret := create(t, db, key.Operator, "ops.team-1_a")
	if form := regexp.MustCompile(`^tp_[0-9a-f]{12}_[0-9a-f]{64}$`); !form.MatchString(shop) || shopPrefix == opsPrefix || shopSecret == opsSecret {
		t.Errorf("keys look like %s and %s", shop, ops)
	}
	v := verifier(t, db, time.Minute)
	for range 2 { // from the database, then from memory
		k, err := v.Verify(t.Context(), shop)
		if err != nil || k.Role != key.App || k.Client != "shop" || k.Prefix != shopPrefix || k.RevokedAt != nil || k.CreatedAt.IsZero() {
			t.Errorf("shop: %+v, %v", k, err)
		}
		k, err = v.Verify(t.Context(), ops)
		if err != nil || k.Role != key.Operator || k.Client != "ops.team-1_a" || k.Prefix != opsPrefix {
			t.Errorf("ops: %+v, %v", k, err)
		}
	}
}

func TestTheSecretIsNotInTheDatabase(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	_, _, secret := create(t, db, key.App, "shop")
	raw, _ := hex.DecodeString(secret)
	row := servers.Value[string](t, db, `SELECT k::text FROM api_keys k`)
	for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), string(raw)} {
		for i := 0; i+8 <= len(form); i += 8 {
			if strings.Contains(row, form[i:i+8]) {
				t.Errorf("a part of the secret is in the row %s", row)
			}
		}
	}
	if digest := sha256.Sum256([]byte(secret)); !strings.Contains(row, hex.EncodeToString(digest[:])) {
		t.Errorf("the row %s does not have the secret's SHA-256", row)
	}
}

// All keys of a client share its jobs and idempotency keys: what an operator may do
// there an app must not see, and the other way round.
func TestAClientHasKeysOfOneRole(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	_, prefix, _ := create(t, db, key.App, "shop")
	create(t, db, key.App, "shop")
	revoke(t, db, prefix)
	if text, err := key.Create(t.Context(), db, key.Operator, "shop"); err == nil || text != "" || !strings.Contains(err.Error(), "choose another client name") {
		t.Errorf("an operator's key of an app's client: %q, %v", text, err)
	}
	create(t, db, key.Operator, "ops")
	if _, err := key.Create(t.Context(), db, key.App, "ops"); err == nil {
		t.Error("an app's key of an operator's client")
	}
	if _, err := db.Exec(t.Context(), `UPDATE api_keys SET role = 'operator' WHERE client = 'shop'`); err == nil {
		t.Error("the database lets a key change its role alone")
	}
	if keys := list(t, db); len(keys) != 3 {
		t.Errorf("the database has %+v", keys)
	}
}

func TestABadRoleOrClientIsRefused(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, role := range []key.Role{"", "admin", "App", "app ", "operator\x00"} {
		if text, err := key.Create(t.Context(), db, role, "shop"); err == nil || text != "" || fromPostgres(err) {
			t.Errorf("the role %q: %q, %v", role, text, err)
		}
	}
	for _, client := range []string{"", "system", "all", "oidc", "Shop", "-shop", ".shop", "_shop", "a shop", "shop\n", "läden", "shop/1", strings.Repeat("a", 65)} {
		if text, err := key.Create(t.Context(), db, key.App, client); err == nil || text != "" || fromPostgres(err) {
			t.Errorf("the client %q: %q, %v", client, text, err)
		}
	}
	if keys := list(t, db); len(keys) != 0 {
		t.Errorf("the database has %+v", keys)
	}
	for _, client := range []string{"s", "0", "system2", "a.b_c-d", strings.Repeat("a", 64)} {
		create(t, db, key.App, client)
	}
}

// fromPostgres tells whether it took the database to refuse something.
func fromPostgres(err error) bool {
	_, ok := errors.AsType[*pgconn.PgError](err)
	return ok
}

func TestTheListIsNewestFirst(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	_, first, _ := create(t, db, key.App, "shop")
	_, second, _ := create(t, db, key.Operator, "ops")
	_, third, _ := create(t, db, key.App, "shop")
	revoke(t, db, second)
	var got []string
	for _, k := range list(t, db) {
		got = append(got, fmt.Sprint(k.Prefix, " ", k.Role, " ", k.Client, " ", k.RevokedAt != nil && !k.RevokedAt.Before(k.CreatedAt)))
	}
	if want := []string{third + " app shop false", second + " operator ops true", first + " app shop false"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRevokingTwiceKeepsTheFirstTime(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	_, prefix, _ := create(t, db, key.App, "shop")
	for strings.ToUpper(prefix) == prefix { // one in three hundred has digits only
		_, prefix, _ = create(t, db, key.App, "shop")
	}
	_, other, _ := create(t, db, key.App, "shop")
	var times []time.Time
	for range 2 {
		revoke(t, db, prefix)
		for _, k := range list(t, db) {
			if k.Prefix == prefix {
				times = append(times, *k.RevokedAt)
			} else if k.Prefix == other && k.RevokedAt != nil {
				t.Error("another key of the client is revoked too")
			}
		}
	}
	if !times[0].Equal(times[1]) {
		t.Errorf("revoked at %s and %s", times[0], times[1])
	}
	for _, unknown := range []string{"", "ffffffffffff", strings.ToUpper(prefix)} {
		if _, _, err := key.Revoke(t.Context(), db, unknown, "", nothing); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%q: %v", unknown, err)
		}
	}
}
