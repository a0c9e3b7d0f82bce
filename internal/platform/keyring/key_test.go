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

func TestAMACOpensWhatItSealedAtThatKeyOnly(t *testing.T) {
	mac := NewMAC("secret")
	sealed := mac.Seal("key", []byte("value"))
	if value, ok := mac.Open("key", sealed); !ok || string(value) != "value" {
		t.Errorf("got %q, %t", value, ok)
	}
	changed := append(bytes.Clone(sealed[:len(sealed)-1]), 'x')
	for name, got := range map[string]func() ([]byte, bool){
		"another secret":  func() ([]byte, bool) { return NewMAC("other").Open("key", sealed) },
		"another key":     func() ([]byte, bool) { return mac.Open("kez", sealed) },
		"a changed value": func() ([]byte, bool) { return mac.Open("key", changed) },
		"a value cut off": func() ([]byte, bool) { return mac.Open("key", sealed[:len(sealed)-1]) },
		"no MAC":          func() ([]byte, bool) { return mac.Open("key", append(make([]byte, 32), "value"...)) },
		"less than a MAC": func() ([]byte, bool) { return mac.Open("key", sealed[:8]) },
	} {
		if value, ok := got(); ok {
			t.Errorf("%s: got %q", name, value)
		}
	}
}
