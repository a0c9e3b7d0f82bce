package drawing_test

import (
	"errors"
	"testing"

	"triprize/internal/drawing"
	"triprize/internal/platform/keyring"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func ring(t *testing.T, current, previous string) keyring.Keyring {
	t.Helper()
	keys, err := keyring.Parse(current, previous)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := drawing.InsertKeyCheck(t.Context(), db, []byte("of a process that came second")); err != nil {
		t.Fatal(err)
	}
	expect("step 1", ring(t, old, anew), true)
	expect("step 2", ring(t, anew, old), true)
	if _, err := drawing.RotateSecrets(t.Context(), db, ring(t, anew, old), 10); err != nil {
		t.Fatal(err)
	}
	expect("step 4", ring(t, anew, ""), true)
	expect("the key that was thrown away", ring(t, old, ""), false)

	fixture.Campaign(t, db, fixture.Draft(3)) // its secret is opened by neither
	if _, err := drawing.RotateSecrets(t.Context(), db, ring(t, keyring.NewKey(), ""), 10); err != nil {
		t.Fatal(err)
	}
	expect("after a rotation with keys that open nothing", ring(t, anew, ""), true)
}

// One failure may be an accident. Two in a row are none, until the draw goes on; and a wait
// is no failure.
func TestADrawThatFailsTwiceInARowIsFailing(t *testing.T) {
	t.Parallel()
	db, s := servers.DB(t), newSigner(t)
	id := withBeacon(t, db, s)
	ref := fixture.SellOut(t, db, id)
	wrong := drawing.NewDrawer(db, ring(t, keyring.NewKey(), ""), settings, drawing.DrawerOptions{}, servers.Logger(t))
	expect := func(n int) {
		t.Helper()
		failing, err := drawing.Failing(t.Context(), db, 5)
		if err != nil || len(failing) != n || n == 1 && failing[0] != id {
			t.Errorf("failing are %v, %v, want %d", failing, err, n)
		}
	}
	for n := range 2 {
		if _, err := wrong.Run(t.Context(), ref); err == nil {
			t.Fatal("drawn")
		}
		expect(n)
	}
	if w, err := drawing.CountWaits(t.Context(), db); err != nil || w != 1 {
		t.Errorf("counted are %+v, %v", w, err)
	}
	_, err := drawerWith(t, db, drawing.DrawerOptions{}).Run(t.Context(), ref)
	_ = waits(t, err)
	expect(0)
}
