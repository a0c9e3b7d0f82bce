package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

const installHint = "run: make deps (Debian and Ubuntu), or install PostgreSQL 15 or newer and Redis 7 or newer"

// postgresBin returns the folder with a recent enough initdb and postgres.
func postgresBin() (string, error) {
	candidates, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // Debian does not put them into PATH
	sort.Slice(candidates, func(i, j int) bool { return version(candidates[i]) > version(candidates[j]) })
	if path, err := exec.LookPath("postgres"); err == nil {
		if program, err := filepath.EvalSymlinks(path); err == nil { // a folder with links may lack pg_basebackup
			path = program
		}
		candidates = append([]string{filepath.Dir(path)}, candidates...)
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	for _, dir := range candidates {
		if executable(filepath.Join(dir, "postgres")) && executable(filepath.Join(dir, "initdb")) && recent(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", errors.New("devstack: the server programs of PostgreSQL 15 or newer are not on this machine; " + installHint)
}

const (
	oldestPostgres = 15
	oldestRedis    = 7 // SET with NX and GET together
)

var majorVersion = regexp.MustCompile(`\d+`)

// recent tells whether a postgres program is new enough: "postgres (PostgreSQL) 15.13 (Debian …)".
func recent(program string) bool {
	out, err := exec.Command(program, "--version").Output()
	major, _ := strconv.Atoi(string(majorVersion.Find(out)))
	return err == nil && major >= oldestPostgres
}

// version reads the 15 of /usr/lib/postgresql/15/bin.
func version(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func redisServer() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("devstack: redis-server is not on this machine; " + installHint)
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("devstack: %s --version: %w", path, err)
	}
	if redisMajor(string(out)) < oldestRedis {
		return "", fmt.Errorf("devstack: %s is older than %d: %s; %s", path, oldestRedis, strings.TrimSpace(string(out)), installHint)
	}
	return path, nil
}

var redisVersion = regexp.MustCompile(`\bv=(\d+)`)

// redisMajor reads the 7 of "Redis server v=7.0.15 sha=00000000:0 malloc=… build=…".
func redisMajor(version string) int {
	found := redisVersion.FindStringSubmatch(version)
	if found == nil {
		return 0
	}
	major, _ := strconv.Atoi(found[1])
	return major
}

// postgresUser returns the user that Postgres runs as, because it refuses to run
// as root; nil: the user of this process.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil means: no other user
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("devstack: Postgres does not run as root, and there is neither a user postgres nor nobody")
}

// checkReachable fails when the user of Postgres cannot enter dir, because a
// folder above it is closed to other users, as /root is.
func checkReachable(dir string, as *syscall.Credential) error {
	if as == nil {
		return nil
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode()&0o001 == 0 && stat.Uid != as.Uid && !(stat.Gid == as.Gid && info.Mode()&0o010 != 0) {
			return fmt.Errorf("devstack: Postgres does not run as root, and its user cannot enter %s; choose a folder elsewhere, for example --data /var/tmp/triprize", parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}
