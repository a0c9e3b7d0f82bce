package fairdraw

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
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
func FuzzAProofIsReadInItsOnlySpellingOrRefused(f *testing.F) {
	seeds(f, "*.json")
	f.Fuzz(func(t *testing.T, document []byte) {
		p, lines, err := read(string(document))
		var form *FormError
		if err != nil && !errors.As(err, &form) {
			t.Fatalf("refused without a place: %v", err)
		}
		if err == nil && write(t, p, lines) != string(document) {
			t.Fatalf("written again it is\n%s", write(t, p, lines))
		}
	})
}

func FuzzAListIsReadInItsOnlySpellingOrRefused(f *testing.F) {
	seeds(f, "list-*.json")
	f.Fuzz(func(t *testing.T, document []byte) {
		l, lines, err := readList(string(document))
		var form *FormError
		if err != nil && !errors.As(err, &form) {
			t.Fatalf("refused without a place: %v", err)
		}
		if err == nil && writeList(t, l, lines) != string(document) {
			t.Fatalf("written again it is\n%s", writeList(t, l, lines))
		}
	})
}

func FuzzAProofOfPurchaseIsReadInItsOnlySpellingOrRefused(f *testing.F) {
	seeds(f, "*purchase*.json")
	f.Fuzz(func(t *testing.T, document []byte) {
		p, err := ReadPurchaseProof(bytes.NewReader(document))
		var form *FormError
		if err != nil {
			if !errors.As(err, &form) {
				t.Fatalf("refused without a place: %v", err)
			}
			return
		}
		again, err := p.Canonical()
		if err != nil || !bytes.Equal(again, document) {
			t.Fatalf("written again it is\n%s\n%v", again, err)
		}
		_ = p.CheckPaths() // any answer will do: it does not panic
	})
}

func FuzzRulesAreReadInTheirOnlySpellingOrRefused(f *testing.F) {
	for _, law := range []Rules{operatorLaw(), {}} {
		text, err := law.Canonical()
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

func operatorLaw() Rules {
	law := NewRules(seedID("fuzz", 0), Triangle(3), prizes(1, 2, 3), bound(testChain.Chain))
	law.Unsold = &Unsold{EndsAt: At(testChain.DueAt(7))}
	return law
}
