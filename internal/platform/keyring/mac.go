package keyring

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MAC authenticates values in Redis: write access to Redis alone is not enough to forge one.
type MAC struct{ key []byte }

// NewMAC returns the MAC of a fleet with this draw.secret_key.
func NewMAC(secret string) MAC {
	// The label is older than what is sealed today.
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "triprize: records of requests in Redis, 2", sha256.Size)
	if err != nil { // not with this length
		panic(err)
	}
	return MAC{key}
}

// Hasher hashes the ids of erased users, so that they can be recognized and not be read. It has a key for each of a rotation.
type Hasher [][]byte

// NewHasher returns the Hasher of draw.secret_key and draw.previous_secret_keys; nil without either.
func NewHasher(current, previous string) (h Hasher) {
	for secret := range strings.SplitSeq(current+","+previous, ",") {
		if strings.TrimSpace(secret) == "" {
			continue
		}
		key, err := hkdf.Key(sha256.New, []byte(strings.TrimSpace(secret)), nil, "triprize: ids of erased users", sha256.Size)
		if err != nil { // not with this length
			panic(err)
		}
		h = append(h, key)
	}
	return h
}

// Pads returns the keys as the function erased_hashes of the schema takes them (RFC 2104).
func (h Hasher) Pads() string {
	var all []string
	for _, key := range h {
		inner, outer := bytes.Repeat([]byte{0x36}, sha256.BlockSize), bytes.Repeat([]byte{0x5c}, sha256.BlockSize)
		for i, b := range key {
			inner[i] ^= b
			outer[i] ^= b
		}
		all = append(all, hex.EncodeToString(inner)+":"+hex.EncodeToString(outer))
	}
	return strings.Join(all, ",")
}

// Of returns the hash of a text under the current key.
func (h Hasher) Of(text string) []byte {
	mac := hmac.New(sha256.New, h[0])
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// sum is for a value at a Redis key; the names of keys of one kind have the same length.
func (m MAC) sum(key string, value []byte) []byte {
	mac := hmac.New(sha256.New, m.key)
	mac.Write([]byte(key))
	mac.Write(value)
	return mac.Sum(nil)
}

// Seal returns what to store at a key.
func (m MAC) Seal(key string, value []byte) []byte { return append(m.sum(key, value), value...) }

// Open reads what Seal returned for the same key; it returns false for anything else.
func (m MAC) Open(key string, sealed []byte) (value []byte, ok bool) {
	if len(sealed) < sha256.Size || !hmac.Equal(sealed[:sha256.Size], m.sum(key, sealed[sha256.Size:])) {
		return nil, false
	}
	return sealed[sha256.Size:], true
}
