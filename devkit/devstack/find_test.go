package devstack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// server puts a program into a new folder that says it is a Postgres.
func server(t *testing.T, version string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		program(t, dir, name, fmt.Sprintf("echo '%s (PostgreSQL) %s'\n", name, version))
	}
	return dir
}

func TestThePostgresInPathIsTakenUnlessItIsTooOld(t *testing.T) {
	installed, err := postgresBin()
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	for version, taken := range map[string]bool{"15.13 (Debian 15.13-1)": true, "18beta1": true, "14.18": false, "9.6.24": false, "unknown": false} {
		dir := server(t, version)
		t.Setenv("PATH", dir+string(filepath.ListSeparator)+path)
		got, err := postgresBin()
		if err != nil || (got == dir) != taken || !taken && !recent(filepath.Join(got, "postgres")) {
			t.Errorf("%s: got %s, %v", version, got, err)
		}
	}
	dir := server(t, "17.5")
	if err := os.Remove(filepath.Join(dir, "initdb")); err != nil { // clients only
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+path)
	if got, err := postgresBin(); err != nil || got == dir {
		t.Errorf("without initdb: got %s, %v, there is %s", got, err, installed)
	}
}

func TestWithoutPostgresTheErrorSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := unshared(exec.Command("true")).Run(); err != nil {
		t.Skip(cannotHide, err)
	}
	found := playBy(t, unshared(exec.Command(self)), "find postgres", "PATH="+t.TempDir())
	if strings.HasPrefix(found.Error, cannotHide) {
		t.Skip(found.Error)
	}
	for _, want := range []string{"PostgreSQL 15 or newer", "not on this machine", "make deps"} {
		if !strings.Contains(found.Error, want) {
			t.Errorf("%q does not say %q", found.Error, want)
		}
	}
}

func TestWithoutRedisTheErrorSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := redisServer()
	for _, want := range []string{"redis-server is not on this machine", "make deps", "Redis 7 or newer"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestAFolderThatPostgresCannotEnterIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	somebody := &syscall.Credential{Uid: 54321, Gid: 54321}
	if err := checkReachable("/data", somebody); err != nil {
		t.Errorf("below a folder for all: %v", err)
	}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.MkdirAll(filepath.Join(closed, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	refusal := "cannot enter " + closed + ";"
	for _, below := range []string{"data", "open/data"} {
		err := checkReachable(filepath.Join(closed, below), somebody)
		if err == nil || !strings.Contains(err.Error(), refusal) || !strings.Contains(err.Error(), "--data") {
			t.Errorf("below a folder for its owner: %v", err)
		}
	}
	info, err := os.Stat(closed)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	for _, as := range []*syscall.Credential{nil, {Uid: stat.Uid, Gid: 54321}} {
		if err := checkReachable(filepath.Join(closed, "data"), as); err != nil {
			t.Errorf("as its owner: %v", err)
		}
	}
	if err := os.Chmod(closed, 0o710); err != nil {
		t.Fatal(err)
	}
	one := &syscall.Credential{Uid: 54321, Gid: stat.Gid} // who is stopped further up
	if err := checkReachable(filepath.Join(closed, "data"), one); err == nil || strings.Contains(err.Error(), refusal) {
		t.Errorf("as one of its group: %v", err)
	}
}
