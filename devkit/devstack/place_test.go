package devstack

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOnlyThrowAwayDataWithoutFsyncLiesInMemory(t *testing.T) {
	t.Setenv("TMPDIR", "")
	if got := place(false); got != os.TempDir() {
		t.Errorf("data that is measured lies in %s", got)
	}
	if memory := roomyMemory(); memory != "" {
		if got := place(true); got != memory {
			t.Errorf("with room in %s it lies in %s", memory, got)
		}
		left, err := os.MkdirTemp(memory, throwawayPattern)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Remove(left) }()
		if !slices.Contains(throwaways(), left) {
			t.Errorf("%s would never be removed", left)
		}
	} else if got := place(true); got != os.TempDir() {
		t.Errorf("without room in memory it lies in %s", got)
	}
	chosen := t.TempDir()
	t.Setenv("TMPDIR", chosen)
	if got := place(true); got != chosen {
		t.Errorf("TMPDIR is %s, and it lies in %s", chosen, got)
	}
	if got := throwaways(); len(got) != 0 {
		t.Errorf("leftovers %v in %s", got, filepath.Base(chosen))
	}
}
