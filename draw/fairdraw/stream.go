package fairdraw

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/google/uuid"
)

// Entropy returns HMAC-SHA-256(key = secret, "triprize-draw/1 entropy" || 0x00 ||
// campaign_id || root || randomness); randomness is a beacon's 32 bytes, or empty.
func Entropy(secret []byte, campaignID uuid.UUID, root [sha256.Size]byte, randomness []byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(Version + " entropy\x00"))
	mac.Write(campaignID[:])
	mac.Write(root[:])
	mac.Write(randomness)
	return [sha256.Size]byte(mac.Sum(nil))
}

// Stream is the sequence of 8-byte numbers that an entropy determines. Block
// i = 0, 1, … is HMAC-SHA-256(key = entropy, "triprize-draw/1 stream" || 0x00 ||
// i (8 bytes)), read as four numbers in order. The zero value is not usable.
type Stream struct {
	entropy [sha256.Size]byte
	next    uint64 // index of the next block
	block   []byte // the unread rest of the current one
}

// NewStream starts the stream of an entropy.
func NewStream(entropy [sha256.Size]byte) *Stream { return &Stream{entropy: entropy} }

// Uint64 returns the next number.
func (s *Stream) Uint64() uint64 {
	if len(s.block) == 0 {
		mac := hmac.New(sha256.New, s.entropy[:])
		mac.Write([]byte(Version + " stream\x00"))
		mac.Write(binary.BigEndian.AppendUint64(nil, s.next))
		s.block = mac.Sum(nil)
		s.next++
	}
	x := binary.BigEndian.Uint64(s.block)
	s.block = s.block[8:]
	return x
}

// Below returns an unbiased index in [0, n): the next number x with
// x < 2^64 − (2^64 mod n), modulo n. n must be positive.
func (s *Stream) Below(n uint64) uint64 { return below(n, math.MaxUint64, s.Uint64) }

// below returns an unbiased index in [0, n) from numbers that are 0 … last, each as likely:
// the uneven end is skipped, which would favour the small ones.
func below(n, last uint64, next func() uint64) uint64 {
	excess := (last%n + 1) % n // (last + 1) mod n, without leaving 64 bits
	for {
		if x := next(); x <= last-excess {
			return x % n
		}
	}
}
