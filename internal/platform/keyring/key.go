// Package keyring encrypts small secrets for storage in a row, with AES-256-GCM. A
// sealed secret opens only with the same [Key] and the same row. A [Keyring] has the keys of
// a process while one replaces another.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrOpen means that a sealed secret cannot be opened: the key or the row is
// another one, or bytes were changed.
var ErrOpen = errors.New("keyring: the secret cannot be opened with draw.secret_key, nor with draw.previous_secret_keys")

// format is the first byte of every sealed secret, so that a later format can be
// recognised.
const format = 1

// Key seals and opens.
type Key struct{ aead cipher.AEAD }

// parseKey takes 64 hex digits: a 256-bit key.
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
