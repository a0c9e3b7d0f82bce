package fairdraw

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Hash is 32 bytes, a SHA-256 hash or a secret. As text it is 64 lower-case hex digits.
type Hash [sha256.Size]byte

// String returns the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText returns the hash in hex.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText takes what MarshalText returns, and no other spelling.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(h) || hex.EncodeToString(b) != string(text) {
		return errors.New("must be 64 hex digits in lower case")
	}
	copy(h[:], b)
	return nil
}

// Instant is a time in a document: RFC 3339 in UTC, with Z and always six digits of the
// second, such as 2026-11-22T09:30:00.123456Z. Shorter fractions would have several
// spellings.
type Instant struct{ time.Time }

const instantLayout = "2006-01-02T15:04:05.000000Z"

// At returns the instant of t, cut to whole microseconds.
func At(t time.Time) Instant { return Instant{t.UTC().Truncate(time.Microsecond)} }

// String returns the instant as it stands in documents.
func (i Instant) String() string { return i.UTC().Format(instantLayout) }

// MarshalJSON returns the text in quotes.
func (i Instant) MarshalJSON() ([]byte, error) { return []byte(`"` + i.String() + `"`), nil }

// UnmarshalJSON takes what MarshalJSON returns, and no other spelling.
func (i *Instant) UnmarshalJSON(text []byte) error {
	t, err := time.Parse(`"`+instantLayout+`"`, string(text))
	if err != nil || t.Year() < 1 || `"`+t.Format(instantLayout)+`"` != string(text) {
		return fmt.Errorf("%s is no time such as %q", text, instantLayout)
	}
	i.Time = t.UTC()
	return nil
}

// Bytes are bytes of any length. As text they are lower-case hex digits.
type Bytes []byte

// MarshalText returns the bytes in hex.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(b)), nil }

// UnmarshalText takes what MarshalText returns, and no other spelling.
func (b *Bytes) UnmarshalText(text []byte) error {
	decoded, err := hex.DecodeString(string(text))
	if err != nil || hex.EncodeToString(decoded) != string(text) {
		return errors.New("must be hex digits in lower case")
	}
	*b = decoded
	return nil
}
