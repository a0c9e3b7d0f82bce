package keyring

import (
	"bytes"
	"errors"
	"testing"
)

func TestOnlyTheSameKeyAndRowOpen(t *testing.T) {
	key, err := parseKey(NewKey())
	if err != nil {
		t.Fatal(err)
	}
	other, _ := parseKey(NewKey())
	sealed := key.Seal([]byte("secret"), []byte("row 1"))
	if bytes.Contains(sealed, []byte("secret")) {
		t.Error("not encrypted")
	}
	if got, err := key.Open(sealed, []byte("row 1")); err != nil || string(got) != "secret" {
		t.Errorf("got %q, %v", got, err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another key":   func() ([]byte, error) { return other.Open(sealed, []byte("row 1")) },
		"another row":   func() ([]byte, error) { return key.Open(sealed, []byte("row 2")) },
		"changed bytes": func() ([]byte, error) { return key.Open(changed, []byte("row 1")) },
		"nothing":       func() ([]byte, error) { return key.Open(nil, []byte("row 1")) },
		"another kind":  func() ([]byte, error) { return key.Open([]byte{9, 9}, []byte("row 1")) },
	} {
		if got, err := open(); !errors.Is(err, ErrOpen) {
			t.Errorf("%s opened it: %q, %v", name, got, err)
		}
	}
}

func TestSealingTwiceDiffers(t *testing.T) {
	key, _ := parseKey(NewKey())
	if bytes.Equal(key.Seal([]byte("s"), nil), key.Seal([]byte("s"), nil)) {
		t.Error("the same bytes twice")
	}
}

func TestKeysAre64HexDigits(t *testing.T) {
	for _, text := range []string{"", "abcd", NewKey()[1:], "zz" + NewKey()[2:]} {
		if _, err := parseKey(text); err == nil {
			t.Errorf("%q was taken for a key", text)
		}
	}
}
