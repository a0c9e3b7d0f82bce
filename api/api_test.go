//go:build contract

package api

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is generated is in the repository, so that it can be read and built
// without the generator; it is that of this document.
func TestTheGeneratedCodeIsCurrent(t *testing.T) {
	t.Parallel()
	path, err := exec.Command("go", "tool", "-modfile="+absolute(t, "tools/go.mod"), "-n", "oapi-codegen").Output()
	if err != nil {
		t.Fatal(err)
	}
	for folder, c := range map[string]struct{ config, generated string }{
		"internal/entry/httpapi/contract":            {"oapi-codegen.yaml", "contract.gen.go"},
		"internal/entry/httpapi/contract/operations": {"oapi-codegen.yaml", "operations.gen.go"},
		"client": {"client.yaml", "api.gen.go"},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, folder) // as deep as it is: the settings name the overlay relatively
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(absolute(t, "api"), filepath.Join(root, "api")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(absolute(t, folder, "templates"), filepath.Join(dir, "templates")); err != nil { // named by the settings, relatively
			t.Fatal(err)
		}
		generate := exec.Command(strings.TrimSpace(string(path)), "-config", absolute(t, folder, c.config),
			absolute(t, "api/openapi.yaml"))
		generate.Dir = dir
		if out, err := generate.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		want, err := os.ReadFile(filepath.Join(dir, c.generated))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(absolute(t, folder, c.generated))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s/%s is not what is generated from openapi.yaml: run make generate", folder, c.generated)
		}
	}
}
