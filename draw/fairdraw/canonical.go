package fairdraw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// MaxInteger is the largest integer of a document: beyond it canonical JSON, whose numbers
// are those of ECMAScript, does not tell neighbours apart.
const MaxInteger = 1<<53 - 1

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
			if n, err := strconv.ParseUint(value.String(), 10, 64); err != nil || n > MaxInteger {
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
