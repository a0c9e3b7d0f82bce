package webhook_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/key"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

func TestWhatARevokedKeyHasMadeEndsOrIsGivenToAnother(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	newKey := func(client string) (prefix string) {
		t.Helper()
		text, err := key.Create(t.Context(), db, key.App, client)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(text, "_")[1]
	}
	revoke := func(keyID, successor string) error {
		return inTx(t, db, func(tx pgx.Tx) error {
			if err := key.Revoke(t.Context(), tx, keyID); err != nil {
				return err
			}
			if successor != "" {
				if err := key.CheckSuccessor(t.Context(), tx, keyID, successor); err != nil {
					return err
				}
			}
			_, err := webhook.KeyRevoked(t.Context(), tx, keyID, successor)
			return err
		})
	}
	madeBy := func(key string) (e webhook.Endpoint, err error) {
		url := "https://shop.example/hooks"
		wanted := webhook.Endpoint{ID: uuidv7.New(), Client: "shop", URL: url, Events: []string{"*"}, MadeBy: key}
		err = inTx(t, db, func(tx pgx.Tx) (err error) {
			e, err = webhook.Create(t.Context(), tx, wanted, []byte("sealed"), 16)
			return err
		})
		return e, err
	}
	made := func(key string) webhook.Endpoint {
		t.Helper()
		e, err := madeBy(key)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	now := func(e webhook.Endpoint) webhook.Endpoint {
		t.Helper()
		e, err := webhook.Get(t.Context(), db, e.ID)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	stolen, good, other := newKey("shop"), newKey("shop"), newKey("other")
	theirs, moved, kept := made(stolen), made(good), made(good)
	elsewhere := "https://thief.example/hooks"
	if err := inTx(t, db, func(tx pgx.Tx) error {
		_, err := webhook.Patch(t.Context(), tx, moved.ID, webhook.Change{URL: &elsewhere, Key: stolen})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for what, successor := range map[string]string{"of another client": other, "itself": stolen, "unknown": "000000000000"} {
		if err := revoke(stolen, successor); err == nil {
			t.Errorf("a successor that is %s is accepted", what)
		}
	}
	if err := revoke(stolen, ""); err != nil {
		t.Fatal(err)
	}
	for what, e := range map[string]webhook.Endpoint{"made": theirs, "moved": moved} {
		if e := now(e); e.DisabledReason == nil || *e.DisabledReason != webhook.Revoked {
			t.Errorf("what the key has %s: %+v", what, e)
		}
	}
	if e := now(kept); e.DisabledAt != nil {
		t.Errorf("what another key has made: %+v", e)
	}
	// A process that still knows the key makes nothing with it.
	for what, do := range map[string]func(tx pgx.Tx) error{
		"enable": func(tx pgx.Tx) error { _, err := webhook.Enable(t.Context(), tx, theirs.ID, stolen); return err },
		"patch": func(tx pgx.Tx) error {
			_, err := webhook.Patch(t.Context(), tx, kept.ID, webhook.Change{URL: &elsewhere, Key: stolen})
			return err
		},
	} {
		if err := inTx(t, db, do); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("%s with a revoked key: %v", what, err)
		}
	}
	if _, err := madeBy(stolen); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("an endpoint of a revoked key: %v", err)
	}
	if err := inTx(t, db, func(tx pgx.Tx) error { _, err := webhook.Enable(t.Context(), tx, theirs.ID, good); return err }); err != nil {
		t.Fatal(err)
	}
	next := newKey("shop")
	if err := revoke(good, next); err != nil {
		t.Fatal(err)
	}
	for _, e := range []webhook.Endpoint{theirs, kept} { // enabled by it; made by it
		if e := now(e); e.DisabledAt != nil || e.MadeBy != next {
			t.Errorf("given to another key: %+v", e)
		}
	}
}

// A revocation waits for what is being made with the key, and ends it.
func TestAnEndpointThatIsMadeWhileItsKeyIsRevokedIsDisabled(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	text, err := key.Create(t.Context(), db, key.App, "shop")
	if err != nil {
		t.Fatal(err)
	}
	keyID, url := strings.Split(text, "_")[1], "https://shop.example/hooks"
	var endpoints int
	revoked := make(chan error, 1)
	err = inTx(t, db, func(tx pgx.Tx) error {
		if _, err := webhook.Create(t.Context(), tx, webhook.Endpoint{ID: uuidv7.New(), Client: "shop", URL: url, Events: []string{"*"}, MadeBy: keyID}, []byte("sealed"), 16); err != nil {
			return err
		}
		go func() {
			revoked <- inTx(t, db, func(tx pgx.Tx) (err error) {
				if err = key.Revoke(t.Context(), tx, keyID); err == nil {
					endpoints, err = webhook.KeyRevoked(t.Context(), tx, keyID, "")
				}
				return err
			})
		}()
		servers.AwaitBlocked(t, db, 1)
		return nil
	})
	if err = errors.Join(err, <-revoked); err != nil || endpoints != 1 {
		t.Errorf("%d endpoints are disabled, %v", endpoints, err)
	}
}
