package seal

import (
	"fmt"
	"strings"
)

// MostKeys is how many previous keys a Ring has at most: each secret is tried with all.
const MostKeys = 8

// Ring is the keys of a process while one replaces another: it seals with the current
// key, and opens with any. The zero value opens nothing, and must not seal.
type Ring struct {
	current  Key
	previous []Key
}

// ParseRing takes the current key, and previous ones separated by commas. Each is 64 hex
// digits.
func ParseRing(current, previous string) (Ring, error) {
	key, err := ParseKey(current)
	if err != nil {
		return Ring{}, err
	}
	older, err := ParseKeys(previous)
	return Ring{current: key, previous: older}, err
}

// ParseKeys takes at most MostKeys keys, separated by commas; none, when text is empty.
func ParseKeys(text string) (keys []Key, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	list := strings.Split(text, ",")
	if len(list) > MostKeys {
		return nil, fmt.Errorf("seal.ParseKeys: %d keys; at most %d are tried", len(list), MostKeys)
	}
	for i, one := range list {
		key, err := ParseKey(strings.TrimSpace(one))
		if err != nil {
			return nil, fmt.Errorf("seal.ParseKeys: key %d: %w", i+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Seal encrypts secret for a row, with the current key.
func (r Ring) Seal(secret, row []byte) []byte { return r.current.Seal(secret, row) }

// Open decrypts what was sealed with one of the keys, or fails with ErrOpen.
func (r Ring) Open(sealed, row []byte) ([]byte, error) {
	if r.current.aead == nil {
		return nil, ErrOpen
	}
	secret, err := r.current.Open(sealed, row)
	for _, key := range r.previous {
		if err == nil {
			break
		}
		secret, err = key.Open(sealed, row)
	}
	return secret, err
}

// Reseal returns a secret sealed with the current key. What is so already is returned
// unchanged; what no key opens fails with ErrOpen.
func (r Ring) Reseal(sealed, row []byte) ([]byte, error) {
	secret, err := r.Open(sealed, row)
	if err != nil {
		return nil, err
	}
	if _, err := r.current.Open(sealed, row); err == nil {
		return sealed, nil
	}
	return r.Seal(secret, row), nil
}
