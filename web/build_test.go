//go:build web

package web_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"triprize.example/draw/web"
)

func TestTheBuiltPageIsThatOfItsSources(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("../tools/npm/node_modules/esbuild"); err != nil {
		t.Fatal("esbuild is not installed: run make npm")
	}
	built := filepath.Join(t.TempDir(), "verify.html")
	if out, err := exec.CommandContext(t.Context(), "node", "../draw/web/build.mjs", built).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	page, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, web.VerifyPage) {
		t.Error("draw/web/verify.html is not what its sources give: run node draw/web/build.mjs")
	}
}
