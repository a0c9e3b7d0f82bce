package webhook_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/key"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

// key makes a key of a client and returns its id.
func (w *world) key(client string) string {
	w.t.Helper()
	text, err := key.Create(w.t.Context(), w.db, key.App, client)
	servers.NoError(w.t, err)
	return strings.Split(text, "_")[1]
}

// revoke revokes a key, and gives what it has made to its successor; without one it ends so many endpoints.
func (w *world) revoke(keyID, successor string) (endpoints int, err error) {
	_, endpoints, err = key.Revoke(w.t.Context(), w.db, keyID, successor, webhook.KeyRevoked)
	return endpoints, err
}

// madeBy makes an endpoint with a key.
func (w *world) madeBy(tx pgx.Tx, key string) (e webhook.Endpoint, err error) {
	e, _, err = w.create(tx, webhook.Endpoint{MadeBy: key}, 16)
	return e, err
}

func TestWhatARevokedKeyHasMadeEndsOrIsGivenToAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	elsewhere := "https://thief.example/hooks"
	move := func(e *webhook.Endpoint, key string) func(tx pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := webhook.Patch(t.Context(), tx, e.ID, webhook.Change{URL: &elsewhere, Key: key})
			return err
		}
	}
	enable := func(e *webhook.Endpoint, key string) func(tx pgx.Tx) error {
		return func(tx pgx.Tx) error { _, err := webhook.Enable(t.Context(), tx, e.ID, key); return err }
	}
	stolen, good, other := w.key("shop"), w.key("shop"), w.key("other")
	var theirs, moved, kept webhook.Endpoint
	for e, key := range map[*webhook.Endpoint]string{&theirs: stolen, &moved: good, &kept: good} {
		w.tx(func(tx pgx.Tx) (err error) { *e, err = w.madeBy(tx, key); return err })
	}
	w.tx(move(&moved, stolen))
	for what, successor := range map[string]string{"of another client": other, "itself": stolen, "unknown": "000000000000"} {
		if _, err := w.revoke(stolen, successor); err == nil {
			t.Errorf("a successor that is %s is accepted", what)
		}
	}
	if n, err := w.revoke(stolen, ""); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	for what, e := range map[string]webhook.Endpoint{"made": theirs, "moved": moved} {
		if e := w.now(e); e.DisabledReason == nil || *e.DisabledReason != webhook.Revoked {
			t.Errorf("what the key has %s: %+v", what, e)
		}
	}
	if e := w.now(kept); e.DisabledAt != nil {
		t.Errorf("what another key has made: %+v", e)
	}
	// A process that still knows the key makes nothing with it.
	for what, do := range map[string]func(tx pgx.Tx) error{"enable": enable(&theirs, stolen), "patch": move(&kept, stolen),
		"make": func(tx pgx.Tx) error { _, err := w.madeBy(tx, stolen); return err }} {
		if err := w.try(do); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("%s with a revoked key: %v", what, err)
		}
	}
	w.tx(enable(&theirs, good))
	next := w.key("shop")
	_, err := w.revoke(good, next)
	servers.NoError(t, err)
	for _, e := range []webhook.Endpoint{theirs, kept} { // enabled by it; made by it
		if e := w.now(e); e.DisabledAt != nil || e.MadeBy != next {
			t.Errorf("given to another key: %+v", e)
		}
	}
}

// A revocation waits for what is being made with the key, and ends it.
func TestAnEndpointThatIsMadeWhileItsKeyIsRevokedIsDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keyID := w.key("shop")
	var endpoints int
	revoked := make(chan error, 1)
	w.tx(func(tx pgx.Tx) error {
		if _, err := w.madeBy(tx, keyID); err != nil {
			return err
		}
		go func() {
			var err error
			endpoints, err = w.revoke(keyID, "")
			revoked <- err
		}()
		servers.AwaitBlocked(t, w.db, 1)
		return nil
	})
	if err := <-revoked; err != nil || endpoints != 1 {
		t.Errorf("%d endpoints are disabled, %v", endpoints, err)
	}
}
