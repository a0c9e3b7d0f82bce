package keyring

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
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
