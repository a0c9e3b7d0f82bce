package fairdraw

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// maxInteger is the largest integer of a document: beyond it canonical JSON, whose numbers
// are those of ECMAScript, does not tell neighbours apart.
const maxInteger = 1<<53 - 1

func isInteger(numbers ...int) bool {
	return slices.Min(numbers) >= 0 && slices.Max(numbers) <= maxInteger
}

// checkInteger returns an error if a number of a document is no integer of one.
func checkInteger(member string, n int) error {
	if !isInteger(n) {
		return malformed(member, "is %d, which is no integer from 0 to 2^53 − 1", n)
	}
	return nil
}

// FormError says where a document is not as it must be spelled. There is one spelling only,
// so that its bytes are the same for ever.
type FormError struct {
	Member string // of the document; empty: the document itself
	Reason string
}

// Error returns the sentence.
func (e *FormError) Error() string {
	if e.Member == "" {
		return "the document " + e.Reason
	}
	return "the member " + e.Member + " " + e.Reason
}

func malformed(member, format string, args ...any) error {
	return &FormError{Member: member, Reason: fmt.Sprintf(format, args...)}
}

// canonical returns a value as RFC 8785 canonical JSON.
func canonical(value any) ([]byte, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("fairdraw.Canonical: %w", err)
	}
	text, err := jcs.Transform(plain)
	if err != nil {
		return nil, fmt.Errorf("fairdraw.Canonical: %w", err)
	}
	return text, nil
}

// maxDepth bounds how deep objects and lists of a document stand in each other. The document
// itself is the first.
const maxDepth = 16

// isCanonicalObject returns nil if text is a JSON object in RFC 8785 canonical form that can
// be a member of a document: not too deep, and all its numbers are integers from 0 to 2^53 − 1.
func isCanonicalObject(text []byte) error {
	if len(text) == 0 || text[0] != '{' || !json.Valid(text) {
		return errors.New("is not a JSON object")
	}
	if !utf8.Valid(text) {
		return errors.New("is not UTF-8")
	}
	if err := checkTokens(text); err != nil {
		return err
	}
	again, err := jcs.Transform(text)
	if err != nil {
		return fmt.Errorf("cannot be put into canonical form: %w", err)
	}
	return difference(text, again)
}

// checkTokens looks at depth and numbers of valid JSON.
func checkTokens(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for depth := 1; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot be read: %w", err)
		}
		switch value := token.(type) {
		case json.Delim:
			if value == '{' || value == '[' {
				depth++
			} else {
				depth--
			}
			if depth > maxDepth {
				return fmt.Errorf("has objects and lists more than %d deep in the document", maxDepth)
			}
		case json.Number:
			if n, err := strconv.ParseUint(value.String(), 10, 64); err != nil || n > maxInteger {
				return fmt.Errorf("has the number %s, which is no integer from 0 to 2^53 − 1", excerpt([]byte(value)))
			}
		}
	}
}

// decodeCanonical decodes text into a value that has exactly its members, each in its only
// spelling. The error is a clause about the text.
func decodeCanonical(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	again, err := canonical(into)
	if err != nil {
		return fmt.Errorf("cannot be put into canonical form: %w", err)
	}
	return difference(text, again)
}

// difference returns nil if text is its canonical form, else a clause that shows where it
// leaves it: there a member is missing, doubled, out of order or spelled another way.
func difference(text, canonical []byte) error {
	if bytes.Equal(text, canonical) {
		return nil
	}
	at := 0
	for at < min(len(text), len(canonical)) && text[at] == canonical[at] {
		at++
	}
	return fmt.Errorf("is not in its canonical form: from its byte %d it has %q where %q must stand",
		at, excerpt(text[at:]), excerpt(canonical[at:]))
}

func excerpt(text []byte) []byte { return text[:min(len(text), 40)] }

// Hash is 32 bytes, a SHA-256 hash or a secret. As text it is 64 lower-case hex digits.
type Hash [sha256.Size]byte

// String returns the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText returns the hash in hex.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText takes what MarshalText returns, and no other spelling.
func (h *Hash) UnmarshalText(text []byte) error {
	var b Bytes
	if b.UnmarshalText(text) != nil || len(b) != len(h) {
		return errors.New("must be 64 hex digits in lower case")
	}
	*h = Hash(b)
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
