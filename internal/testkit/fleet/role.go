package fleet

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// makeAppRole makes the role that the guide of deployment gives to the processes, in the new database
// at owner, and returns the URL with which they connect. So every test with servers of its own shows
// that the rights of this role are enough.
func makeAppRole(t *testing.T, owner string) string {
	t.Helper()
	const password = "5a5a"
	_, here, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(here), "..", "..", "..", "deploy", "postgres", "app-role.sql")
	cmd := exec.CommandContext(t.Context(), "psql", "--no-psqlrc", "--quiet", "--file="+script, owner) //nolint:gosec // the arguments are this package's own
	cmd.Env = append(os.Environ(), "POSTGRES_APP_PASSWORD="+password)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	at, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword("triprize_app", password)
	return at.String()
}
