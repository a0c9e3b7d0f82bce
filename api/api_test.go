//go:build contract

package api

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"triprize/internal/platform/openapi"
)

func pathOfGenerator(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("go", "tool", "-modfile="+absolute(t, "tools/go.mod"), "-n", "oapi-codegen").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(path))
}

// Others generate from the document that the server sends, which has none of the hints for our
// own generators, and without settings.
func TestOthersCanGenerateAClient(t *testing.T) {
	t.Parallel()
	served, err := openapi.Public(OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	document := filepath.Join(dir, "openapi.json")
	if err := errors.Join(os.WriteFile(document, served, 0o600), os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module generated\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-modfile="+absolute(t, "go.mod"), "./...") // which has the generator's runtime
	build.Dir = dir
	for _, step := range []*exec.Cmd{exec.Command(pathOfGenerator(t), "-generate", "types,client", "-package", "generated", "-o", filepath.Join(dir, "client.go"), document), build} {
		if out, err := step.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", step.Args, err, out)
		}
	}
}

// What is generated is in the repository, so that it can be read and built
// without the generator; it is that of this document.
func TestTheGeneratedCodeIsCurrent(t *testing.T) {
	t.Parallel()
	generator := pathOfGenerator(t)
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
		generate := exec.Command(generator, "-config", absolute(t, folder, c.config),
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
