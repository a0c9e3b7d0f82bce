// Package keyring encrypts small secrets for storage in a row, with AES-256-GCM. A sealed secret can be opened only
// with the same [Key] and row. A [Keyring] has the keys of a process during a key rotation.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// maxKeys bounds the previous keys, because Open tries all.
const maxKeys = 8

// Keyring seals with the current key and opens with any. The zero value opens nothing and must not seal.
type Keyring struct {
	current  Key
	previous []Key
}

// Parse parses the current key and comma separated previous keys. Each has 64 hex digits.
func Parse(current, previous string) (Keyring, error) {
	key, err := parseKey(current)
	if err != nil {
		return Keyring{}, err
	}
	older, err := parseKeys(previous)
	return Keyring{current: key, previous: older}, err
}

// parseKeys parses at most maxKeys comma separated keys; none if text is empty.
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

// Reseal returns a secret sealed with the current key, unchanged if it already is. It fails with ErrOpen if no key
// opens it.
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

// ErrOpen means that a sealed secret cannot be opened: another key or row, or changed bytes.
var ErrOpen = errors.New("keyring: the secret cannot be opened with draw.secret_key, nor with draw.previous_secret_keys")

// format is the first byte of every sealed secret.
const format = 1

// Key is one AES-256 key.
type Key struct{ aead cipher.AEAD }

// parseKey parses 64 hex digits.
func parseKey(text string) (Key, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 32 {
		return Key{}, errors.New("keyring.ParseKey: the key must be 64 hex digits")
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return Key{}, fmt.Errorf("keyring.ParseKey: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return Key{}, fmt.Errorf("keyring.ParseKey: %w", err)
	}
	return Key{aead}, nil
}

// NewKey returns a random key as 64 hex digits.
func NewKey() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// Seal encrypts secret for a row.
func (k Key) Seal(secret, row []byte) []byte {
	return k.aead.Seal([]byte{format}, nil, secret, row) //nolint:gosec // this AEAD chooses a random nonce itself
}

// Open decrypts what Seal returned, or fails with ErrOpen.
func (k Key) Open(sealed, row []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != format {
		return nil, ErrOpen
	}
	secret, err := k.aead.Open(nil, nil, sealed[1:], row)
	if err != nil {
		return nil, ErrOpen
	}
	return secret, nil
}
