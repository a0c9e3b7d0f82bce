package devstack

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func TestARedisThatIsTooOldIsRefusedWithItsVersion(t *testing.T) {
	for version, taken := range map[string]bool{
		"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=d81b8ff71cfb150e": true,
		"Redis server v=8.2.1 sha=00000000:1 malloc=libc bits=64 build=1":                           true,
		"Valkey server v=10.0.0 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=7":               true,
		"Redis server v=6.2.20 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=7":                false,
		"unknown": false,
	} {
		dir := t.TempDir()
		program(t, dir, "redis-server", fmt.Sprintf("echo '%s'\n", version))
		t.Setenv("PATH", dir)
		path, err := redisServer()
		switch {
		case taken && (err != nil || path != filepath.Join(dir, "redis-server")):
			t.Errorf("%s: got %s, %v", version, path, err)
		case !taken && (err == nil || !strings.Contains(err.Error(), version) || !strings.Contains(err.Error(), "older than 7") || !strings.Contains(err.Error(), "make deps")):
			t.Errorf("%s: got %v", version, err)
		}
	}
	dir := t.TempDir()
	program(t, dir, "redis-server", "exit 1\n")
	t.Setenv("PATH", dir)
	if path, err := redisServer(); err == nil || !strings.Contains(err.Error(), "--version") {
		t.Errorf("one that does not run: got %s, %v", path, err)
	}
}
