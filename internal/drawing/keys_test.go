package drawing_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/keyring"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func ring(t *testing.T, current, previous string) keyring.Keyring {
	t.Helper()
	keys, err := keyring.Parse(current, previous)
	servers.NoError(t, err)
	return keys
}

// The first decides which key is right. A rotation changes that, step by step as in
// docs/settings.md, and no process is wrong meanwhile.
func TestAKeyIsRightUntilTheRotationIsDone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	old, anew := keyring.NewKey(), keyring.NewKey()
	expect := func(what string, keys keyring.Keyring, right bool) {
		t.Helper()
		if err := drawing.CheckKeys(t.Context(), db, keys); (err == nil) != right || err != nil && !errors.Is(err, keyring.ErrOpen) {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("the first", ring(t, old, ""), true)
	expect("another", ring(t, anew, ""), false)
	expect("step 1", ring(t, old, anew), true)
	expect("step 2", ring(t, anew, old), true)
	_, err := drawing.RotateSecrets(t.Context(), db, ring(t, anew, old), 10)
	servers.NoError(t, err)
	expect("step 4", ring(t, anew, ""), true)
	expect("the key that was thrown away", ring(t, old, ""), false)

	fixture.Campaign(t, db, fixture.Draft(3)) // its secret is opened by neither
	_, err = drawing.RotateSecrets(t.Context(), db, ring(t, keyring.NewKey(), ""), 10)
	servers.NoError(t, err)
	expect("after a rotation with keys that open nothing", ring(t, anew, ""), true)
}

func TestOfManyFirstProcessesOneDecidesWhichKeyIsRight(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var right atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		keys := ring(t, keyring.NewKey(), "")
		all.Go(func() {
			if err := drawing.CheckKeys(t.Context(), db, keys); err == nil {
				right.Add(1)
			} else if !errors.Is(err, keyring.ErrOpen) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := right.Load(); n != 1 {
		t.Errorf("%d keys are right", n)
	}
}

// One failure may be an accident. Two in a row are none, until the draw goes on; and a wait
// is no failure.
func TestADrawThatFailsTwiceInARowIsFailing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ref := withBeacon(t, db, newChain(t))
	wrong := drawing.NewDrawer(db, ring(t, keyring.NewKey(), ""), settings, drawing.DrawerOptions{}, servers.Logger(t))
	expect := func(n int) {
		t.Helper()
		failing, err := drawing.Failing(t.Context(), db, 5)
		if err != nil || len(failing) != n || n == 1 && failing[0] != ref.CampaignID {
			t.Errorf("failing are %v, %v, want %d", failing, err, n)
		}
	}
	for n := range 2 {
		if _, err := wrong.Run(t.Context(), ref); err == nil {
			t.Fatal("drawn")
		}
		expect(n)
	}
	if w, err := drawing.CountDraws(t.Context(), db); err != nil || w.Waits != 1 {
		t.Errorf("counted are %+v, %v", w, err)
	}
	waits(t, newDrawer(t, db), ref)
	expect(0)
}

// secretOf opens the sealed secret of a campaign.
func secretOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) []byte {
	t.Helper()
	sealed, err := drawing.SecretOf(t.Context(), db, id)
	servers.NoError(t, err)
	secret, err := fixture.Key(t).Open(sealed, id[:])
	servers.NoError(t, err)
	return secret
}

// Draws that succeed, wait and fail in many ways, with everything logged: the secret is in
// no line and in no error.
func TestTheSecretIsInNoLogAndNoError(t *testing.T) {
	t.Parallel()
	db, chain := servers.DB(t), newChain(t)
	var log servers.Journal
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	drawer := drawing.NewDrawer(db, fixture.Key(t), settings, drawing.DrawerOptions{Beacon: newRelays(db)}, logger)
	refs := []job.Ref{withBeacon(t, db, chain), withBeacon(t, db, chain), withBeacon(t, db, chain)}
	for range 3 {
		refs = append(refs, fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3))))
	}
	var secrets [][]byte
	for _, ref := range refs {
		secrets = append(secrets, secretOf(t, db, ref.CampaignID))
	}
	spoilt, mixed := refs[4].CampaignID, refs[5].CampaignID
	foreign := fixture.Key(t).Seal(secrets[0], mixed[:]) // opens, and is another's
	for id, sealed := range map[uuid.UUID][]byte{spoilt: []byte("\x01 no secret at all"), mixed: foreign} {
		servers.Exec(t, db, `UPDATE draw_secrets SET sealed = $2 WHERE campaign_id = $1`, id, sealed)
	}
	failed := 0
	for _, ref := range refs {
		for range 2 {
			if _, err := drawer.Run(t.Context(), ref); err != nil {
				failed++
				logger.Error("it failed", "error", err)
			}
		}
	}
	if failed < 8 || log.String() == "" {
		t.Fatalf("%d failures: the test does not test", failed)
	}
	for _, secret := range secrets {
		for _, form := range []string{string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)),
			base64.StdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret), strings.Trim(strings.Join(strings.Fields(string(secret)), " "), " ")} {
			if form != "" && strings.Contains(log.String(), form) {
				t.Error("a secret is in the log")
			}
		}
	}
}

// Old and new keys are valid side by side; when all is sealed with the new one, the old one
// opens nothing any more.
func TestSecretsAreSealedAnewWithoutADrawThatFails(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var ids []uuid.UUID
	secrets := make(map[uuid.UUID][]byte)
	for range 5 {
		id := fixture.Campaign(t, db, fixture.Draft(3))
		ids, secrets[id] = append(ids, id), secretOf(t, db, id)
	}
	old, newText := fixture.Key(t), keyring.NewKey()
	both, fresh := ring(t, newText, strings.Repeat("5a", 32)), ring(t, newText, "")
	// What has changed meanwhile is not replaced: two rotations at once, or one beside a change.
	if n, err := drawing.Reseal(t.Context(), db, both, ids[0], old.Seal(secrets[ids[0]], ids[0][:])); err != nil || n != 0 {
		t.Errorf("%d secrets that were read as something else are replaced, %v", n, err)
	}
	lost := ids[4]
	servers.Exec(t, db, `UPDATE draw_secrets SET sealed = 'nothing' WHERE campaign_id = $1`, lost)
	for run, want := range []drawing.Rotation{{Checked: 5, Resealed: 4, Unopened: []uuid.UUID{lost}}, {Checked: 5, Unopened: []uuid.UUID{lost}}} {
		if got, err := drawing.RotateSecrets(t.Context(), db, both, 2); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("run %d: %+v, %v, want %+v", run, got, err, want)
		}
	}
	for _, id := range ids[:4] {
		sealed, err := drawing.SecretOf(t.Context(), db, id)
		servers.NoError(t, err)
		if secret, err := fresh.Open(sealed, id[:]); err != nil || !bytes.Equal(secret, secrets[id]) {
			t.Errorf("the new key opens %x, %v", secret, err)
		}
		if _, err := old.Open(sealed, id[:]); !errors.Is(err, keyring.ErrOpen) {
			t.Errorf("the old key still opens it: %v", err)
		}
	}
	drawn(t, drawing.NewDrawer(db, fresh, settings, drawing.DrawerOptions{}, servers.Logger(t)), fixture.SellOut(t, db, ids[0]))
}
