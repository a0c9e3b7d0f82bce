// Package keyring encrypts small secrets for storage in a row, with AES-256-GCM. A sealed secret can be opened only
// with the same key and row. A [Keyring] has the keys of a process during a key rotation. A [MAC] authenticates what is
// stored in Redis.
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

// Keyring seals with its first key, the current one, and opens with any. An empty one opens nothing and must not seal.
type Keyring []cipher.AEAD

// Parse parses the current key and at most maxKeys comma separated previous ones. Each has 64 hex digits.
func Parse(current, previous string) (Keyring, error) {
	texts := []string{current}
	if strings.TrimSpace(previous) != "" {
		texts = append(texts, strings.Split(previous, ",")...)
	}
	if len(texts) > 1+maxKeys {
		return nil, fmt.Errorf("keyring.Parse: %d previous keys; at most %d are tried", len(texts)-1, maxKeys)
	}
	var keys Keyring
	for i, text := range texts {
		raw, err := hex.DecodeString(strings.TrimSpace(text))
		if err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("keyring.Parse: key %d must be 64 hex digits", i)
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, fmt.Errorf("keyring.Parse: %w", err)
		}
		key, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("keyring.Parse: %w", err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// format is the first byte of every sealed secret.
const format = 1

// Seal encrypts secret for a row, with the current key.
func (k Keyring) Seal(secret, row []byte) []byte {
	return k[0].Seal([]byte{format}, nil, secret, row) //nolint:gosec // this AEAD chooses a random nonce itself
}

// ErrOpen means that a sealed secret cannot be opened: another key or row, or changed bytes.
var ErrOpen = errors.New("keyring: the secret cannot be opened with draw.secret_key, nor with draw.previous_secret_keys")

// Open decrypts what was sealed with one of the keys, or fails with ErrOpen.
func (k Keyring) Open(sealed, row []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != format {
		return nil, ErrOpen
	}
	for _, key := range k {
		if secret, err := key.Open(nil, nil, sealed[1:], row); err == nil {
			return secret, nil
		}
	}
	return nil, ErrOpen
}

// Reseal returns a secret sealed with the current key, unchanged if it already is. It fails with ErrOpen if no key
// opens it.
func (k Keyring) Reseal(sealed, row []byte) ([]byte, error) {
	secret, err := k.Open(sealed, row)
	if err != nil {
		return nil, err
	}
	if _, err := k[:1].Open(sealed, row); err == nil {
		return sealed, nil
	}
	return k.Seal(secret, row), nil
}

// NewKey returns a random key as 64 hex digits.
func NewKey() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}
