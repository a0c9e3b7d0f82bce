package fairdraw

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// seeds adds the small vectors whose names fit.
func seeds(f *testing.F, pattern string) {
	f.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata/proofs", pattern))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no vectors %s: %v", pattern, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 8<<10 {
			f.Add(text)
		}
	}
}

// What is read is written back byte for byte; all else is refused with the place.
func inOneSpelling(f *testing.F, pattern string, again func(t *testing.T, document string) (string, error)) {
	f.Helper()
	seeds(f, pattern)
	f.Fuzz(func(t *testing.T, document []byte) {
		text, err := again(t, string(document))
		var form *FormError
		if err != nil && !errors.As(err, &form) {
			t.Fatalf("refused without a place: %v", err)
		}
		if err == nil && text != string(document) {
			t.Fatalf("written again it is\n%s", text)
		}
	})
}

func FuzzAProofIsReadInItsOnlySpellingOrRefused(f *testing.F) {
	inOneSpelling(f, "*.json", func(t *testing.T, document string) (string, error) {
		p, lines, err := read(document)
		if err != nil {
			return "", err
		}
		return write(t, p, lines), nil
	})
}

func FuzzAListIsReadInItsOnlySpellingOrRefused(f *testing.F) {
	inOneSpelling(f, "list-*.json", func(t *testing.T, document string) (string, error) {
		l, lines, err := readList(document)
		if err != nil {
			return "", err
		}
		return writeList(t, l, lines), nil
	})
}

func FuzzAProofOfPurchaseIsReadInItsOnlySpellingOrRefused(f *testing.F) {
	inOneSpelling(f, "*purchase*.json", func(t *testing.T, document string) (string, error) {
		p, err := ReadPurchaseProof(strings.NewReader(document))
		if err != nil {
			return "", err
		}
		again, err := p.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		_ = p.CheckPaths() // any answer will do: it does not panic
		return string(again), nil
	})
}

func FuzzRulesAreReadInTheirOnlySpellingOrRefused(f *testing.F) {
	full := NewRules(uuid.Max, Triangle(3), []Prize{{Number: 1, Layer: 2, Name: "a cup"}}, &Beacon{ChainHash: Hash{1}, PeriodS: 3})
	full.Unsold = &Unsold{EndsAt: At(time.Unix(1_700_000_000, 0))}
	for _, rules := range []Rules{full, {}} {
		text, err := rules.Canonical()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		rules, err := ParseRules(document)
		if err != nil {
			return
		}
		again, err := rules.Canonical()
		if err != nil || !bytes.Equal(again, document) {
			t.Fatalf("written again they are\n%s\n%v", again, err)
		}
		_ = rules.Check(rules.CampaignID)
	})
}
