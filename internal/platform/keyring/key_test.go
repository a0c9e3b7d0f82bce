package keyring

import (
	"bytes"
	"errors"
	"testing"
)

func TestOnlyTheSameKeyAndRowOpen(t *testing.T) {
	key, err := Parse(NewKey(), "")
	if err != nil {
		t.Fatal(err)
	}
	other, _ := Parse(NewKey(), "")
	sealed := key.Seal([]byte("secret"), []byte("row 1"))
	if bytes.Contains(sealed, []byte("secret")) || bytes.Equal(sealed, key.Seal([]byte("secret"), []byte("row 1"))) {
		t.Error("not encrypted, or twice to the same bytes")
	}
	if got, err := key.Open(sealed, []byte("row 1")); err != nil || string(got) != "secret" {
		t.Errorf("got %q, %v", got, err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, c := range map[string]struct {
		keys        Keyring
		sealed, row string
	}{
		"another key":   {other, string(sealed), "row 1"},
		"no key":        {nil, string(sealed), "row 1"},
		"another row":   {key, string(sealed), "row 2"},
		"changed bytes": {key, string(changed), "row 1"},
		"nothing":       {key, "", "row 1"},
		"another kind":  {key, "\x09" + string(sealed[1:]), "row 1"},
	} {
		if got, err := c.keys.Open([]byte(c.sealed), []byte(c.row)); !errors.Is(err, ErrOpen) {
			t.Errorf("%s opened it: %q, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "abcd", NewKey()[1:], "zz" + NewKey()[2:]} {
		if _, err := Parse(text, ""); err == nil {
			t.Errorf("%q was taken for a key", text)
		}
	}
}
