//go:build web

package fairdraw

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// script returns the verifier that stands in the specification. It was written from that
// page, so it shows that the page suffices.
func script(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/draw.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```python\n")
	text, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatal("docs/draw.md has no script")
	}
	path := filepath.Join(t.TempDir(), "verify.py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// verdict is what the script says of a document: the names of checks by their results.
type verdict map[string][]string

// judge runs the script.
func judge(t *testing.T, script, file string, chain *Hash) (v verdict, passed bool) {
	t.Helper()
	args := []string{script, filepath.Join("testdata", file)}
	if chain != nil {
		args = append(args, chain.String())
	}
	var problems bytes.Buffer
	command := exec.CommandContext(t.Context(), "python3", append([]string{"-I"}, args...)...)
	command.Stderr = &problems
	out, err := command.Output()
	if problems.Len() > 0 || (err != nil && command.ProcessState == nil) {
		t.Fatalf("%s: %v\n%s", file, err, problems.Bytes())
	}
	v = verdict{}
	for text := range strings.Lines(string(out)) {
		result, name, _ := strings.Cut(strings.TrimSpace(text), " ")
		v[result] = append(v[result], name)
	}
	if n := len(v["ok"]) + len(v["failed"]) + len(v["not-made"]); n != 14 {
		t.Fatalf("%s: %d checks: %v", file, n, v)
	}
	want := 0
	switch {
	case len(v["failed"]) > 0:
		want = 1
	case len(v["not-made"]) > 0:
		want = 3
	}
	if got := command.ProcessState.ExitCode(); got != want {
		t.Errorf("%s: status %d, want %d: %v", file, got, want, v)
	}
	return v, len(v["failed"]) == 0
}

func TestTheScriptOfTheSpecificationVerifiesEveryProof(t *testing.T) {
	t.Parallel()
	path := script(t)
	for _, p := range index(t).Proofs {
		v, passed := judge(t, path, p.File, p.ChainHash)
		proof, _, err := read(string(text(t, p.File)))
		if err != nil {
			t.Fatal(err)
		}
		var leftOut []string
		if proof.Beacon != nil {
			leftOut = append(leftOut, "signature")
		}
		if !passed || len(v["failed"]) > 0 || !slices.Equal(v["not-made"], leftOut) {
			t.Errorf("%s: %v", p.Name, v)
		}
	}
}

// Each wrong document is wrong in one thing only, so only the named check fails. The one that
// the script leaves out it must not call ok.
func TestTheScriptOfTheSpecificationRefusesEveryWrongProof(t *testing.T) {
	t.Parallel()
	path := script(t)
	for _, w := range index(t).WrongProofs {
		v, passed := judge(t, path, w.File, w.ChainHash)
		if slices.Contains(v["not-made"], w.Check) && w.Check == "signature" {
			continue
		}
		others := len(v["failed"]) > 1 && w.Check != "chain" // without a beacon in one of both, its round cannot fit either
		if passed || !slices.Contains(v["failed"], w.Check) || others {
			t.Errorf("%s: %s must fail: %v", w.Check, w.Name, v)
		}
	}
}
