// Package clientpath tests tools/client-path.sh, on a copy of the sources.
package clientpath

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	root = "../.."
	path = "example.net/acme/triprize/client"
)

// copyOf copies what the script reads and changes into a folder of the test.
func copyOf(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	if out, err := run(t, root, "sh", "-c", "tar -c --exclude=.git --exclude=.triprize --exclude=node_modules --exclude=./bin . | tar -x -C "+to); err != nil {
		t.Fatal(err, out)
	}
	return to
}

func run(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestTheClientGetsAnotherPathEverywhereUnlessNobodyCanFetchIt(t *testing.T) {
	t.Parallel()
	dir := copyOf(t)
	before, err := os.ReadFile(filepath.Join(dir, "client/go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "client", "triprize/client", "/example.net/client", "example.net/client/", "example.net//client", "example.net/a b", "example.net/a#b"} {
		if out, err := run(t, dir, "tools/client-path.sh", path); err == nil || !strings.Contains(out, "usage:") {
			t.Errorf("%q is accepted: %s", path, out)
		}
	}
	if after, err := os.ReadFile(filepath.Join(dir, "client/go.mod")); err != nil || string(after) != string(before) {
		t.Errorf("something was changed: %v\n%s", err, after)
	}
	if out, err := run(t, dir, "tools/client-path.sh", path); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := run(t, filepath.Join(dir, "client"), "go", "list", "-m"); err != nil || out != path {
		t.Errorf("the client is %q, %v", out, err)
	}
	if out, err := run(t, filepath.Join(dir, "client"), "go", "vet", "./..."); err != nil {
		t.Errorf("the client: %v\n%s", err, out)
	}
	for _, module := range []string{".", "bench"} { // they find it in the folder, under its new name
		out, err := run(t, filepath.Join(dir, module), "go", "list", "-m", "-f", "{{.Replace.Dir}}", path)
		if err != nil || !strings.HasSuffix(out, "/client") {
			t.Errorf("%s: the client is in %q, %v", module, out, err)
		}
	}
	old := regexp.MustCompile(`(?m)"triprize\.example/client["/]`)
	imports, err := run(t, dir, "grep", "-rlE", "--include=*.go", `"`+regexp.QuoteMeta(path)+`"`, ".")
	if err != nil || len(strings.Fields(imports)) < 10 {
		t.Errorf("only %q import it: %v", imports, err)
	}
	for _, file := range strings.Fields(imports) {
		if data, err := os.ReadFile(filepath.Join(dir, file)); err != nil || old.Match(data) {
			t.Errorf("%s still imports the old path, %v", file, err)
		}
	}
	if out, err := run(t, dir, "gofmt", "-l", "."); err != nil || out != "" {
		t.Errorf("not formatted: %s, %v", out, err)
	}
}
