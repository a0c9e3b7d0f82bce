// Package deps checks tools/deps.sh on machines that its tests make up.
package deps

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a PATH with what the script needs, a Python that says by its status
// whether it is new enough, and servers that say which version they are. It has no package
// manager and no compiler.
func machine(t *testing.T, postgres, redis, python string) (path string) {
	t.Helper()
	path = t.TempDir()
	scripts := map[string]string{"python3": python, "initdb": "echo " + postgres, "postgres": "echo " + postgres, "redis-server": "echo " + redis}
	for _, name := range []string{"sh", "sed", "dirname", "paste", "cat", "env"} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		scripts[name] = "exec " + program + ` "$@"`
	}
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(path, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestAServerThatIsTooOldIsMissing(t *testing.T) {
	t.Parallel()
	const postgres, redis = "'postgres (PostgreSQL) 16.9 (Debian 16.9-1)'", "'Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64'"
	for name, c := range map[string]struct{ postgres, redis, python, says, also string }{
		"all is there":        {postgres, redis, "exit 0", "", ""},
		"a newer Redis":       {postgres, "'Redis server v=10.0.0 sha=0'", "exit 0", "", ""},
		"an older Redis":      {postgres, "'Redis server v=6.2.20 sha=0'", "exit 0", "Redis (redis-server) 7 or newer", ""},
		"no version of Redis": {postgres, "hello", "exit 0", "Redis (redis-server) 7 or newer", ""},
		"Redis cannot be run": {postgres, "x; exit 1", "exit 0", "Redis (redis-server) 7 or newer", ""},
		"an older Python":     {postgres, redis, "exit 1", "Python 3.9 or newer", "python"},
		"a Python for nobody": {postgres, redis, "exit 1", "", ""},
		"no compiler":         {postgres, redis, "exit 0", "a C compiler", "compiler"},
		"no openssl":          {postgres, redis, "exit 0", "openssl", "openssl"},
		"no nginx":            {postgres, redis, "exit 0", "nginx", "nginx"},
		"no Prometheus":       {postgres, redis, "exit 0", "Prometheus and amtool", "prometheus"},
		"no Docker":           {postgres, redis, "exit 0", "Docker, haproxy, ip and iptables", "docker"},
		"no Patroni":          {postgres, redis, "exit 0", "Patroni, etcd, haproxy, ip and iptables", "hosts"},
	} {
		cmd := exec.CommandContext(t.Context(), "../deps.sh", strings.Fields(c.also)...)
		cmd.Env = []string{"PATH=" + machine(t, c.postgres, c.redis, c.python)}
		out, err := cmd.CombinedOutput()
		if (err == nil) != (c.says == "") || !strings.Contains(string(out), c.says) || c.says == "" && len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
