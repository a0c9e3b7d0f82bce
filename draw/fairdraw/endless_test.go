package fairdraw

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
)

// endless reads the same bytes for ever.
type endless struct {
	block []byte
	at    int
}

func (e *endless) Read(into []byte) (int, error) {
	n := copy(into, e.block[e.at:])
	e.at = (e.at + n) % len(e.block)
	return n, nil
}

// A document whose list does not end is refused at its bound, and not read for ever.
func TestADocumentThatDoesNotEndIsRefused(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/proofs/operator.json")
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(text, []byte(`"sold":[`)) + len(`"sold":[`)
	end := begin + bytes.IndexByte(text[begin:], '}') + 1
	line := append(bytes.Clone(text[begin:end]), ',')
	lines := 0
	_, err = ReadProof(io.MultiReader(bytes.NewReader(text[:begin]), &endless{block: line}), func(SoldLine) error { lines++; return nil })
	if form, ok := errors.AsType[*FormError](err); !ok || lines > MaxDocument/len(line) {
		t.Errorf("after %d lines: %v, %v", lines, form, err)
	}
}
