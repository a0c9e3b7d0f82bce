package keyring

import (
	"fmt"
	"strings"
)

// maxKeys is how many previous keys a Keyring has at most: each secret is tried with all.
const maxKeys = 8

// Keyring is the keys of a process while one replaces another: it seals with the current
// key, and opens with any. The zero value opens nothing, and must not seal.
type Keyring struct {
	current  Key
	previous []Key
}

// Parse takes the current key, and previous ones separated by commas. Each is 64 hex
// digits.
func Parse(current, previous string) (Keyring, error) {
	key, err := parseKey(current)
	if err != nil {
		return Keyring{}, err
	}
	older, err := parseKeys(previous)
	return Keyring{current: key, previous: older}, err
}

// parseKeys takes at most maxKeys keys, separated by commas; none, when text is empty.
func parseKeys(text string) (keys []Key, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	list := strings.Split(text, ",")
	if len(list) > maxKeys {
		return nil, fmt.Errorf("keyring.ParseKeys: %d keys; at most %d are tried", len(list), maxKeys)
	}
	for i, one := range list {
		key, err := parseKey(strings.TrimSpace(one))
		if err != nil {
			return nil, fmt.Errorf("keyring.ParseKeys: key %d: %w", i+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Seal encrypts secret for a row, with the current key.
func (k Keyring) Seal(secret, row []byte) []byte { return k.current.Seal(secret, row) }

// Open decrypts what was sealed with one of the keys, or fails with ErrOpen.
func (k Keyring) Open(sealed, row []byte) ([]byte, error) {
	if k.current.aead == nil {
		return nil, ErrOpen
	}
	secret, err := k.current.Open(sealed, row)
	for _, key := range k.previous {
		if err == nil {
			break
		}
		secret, err = key.Open(sealed, row)
	}
	return secret, err
}

// Reseal returns a secret sealed with the current key. A secret that is so already is
// returned unchanged; one that no key opens fails with ErrOpen.
func (k Keyring) Reseal(sealed, row []byte) ([]byte, error) {
	secret, err := k.Open(sealed, row)
	if err != nil {
		return nil, err
	}
	if _, err := k.current.Open(sealed, row); err == nil {
		return sealed, nil
	}
	return k.Seal(secret, row), nil
}
