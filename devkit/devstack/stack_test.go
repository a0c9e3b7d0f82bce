package devstack

import (
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// begin starts a stack that is stopped at the end of the test, at the latest.
func begin(t *testing.T, opts Options) *Stack {
	t.Helper()
	_ = os.Getenv("TRIPRIZE_TEST_RUN") // Go's cache of results does not see the servers
	s, err := Start(t.Context(), opts)
	noError(t, err)
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// ask returns what the last of some statements returns, as text.
func ask(t *testing.T, databaseURL string, statements ...string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	noError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	last := len(statements) - 1
	for _, statement := range statements[:last] {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	noError(t, conn.QueryRow(t.Context(), statements[last]).Scan(&answer))
	return answer
}

// cache opens a client until the test ends.
func cache(t *testing.T, redisURL string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(redisURL)
	noError(t, err)
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = patience, patience, patience
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// remember writes to both servers what recalled looks for.
func remember(t *testing.T, postgresURL, redisURL string) {
	t.Helper()
	ask(t, postgresURL, `CREATE TABLE kept AS SELECT 'still here' AS what`, `SELECT what FROM kept`)
	noError(t, cache(t, redisURL).Set(t.Context(), "kept", "still here", 0).Err())
}

func recalled(t *testing.T, s *Stack) {
	t.Helper()
	if got := ask(t, s.Postgres.URL("postgres"), `SELECT what FROM kept`); got != "still here" {
		t.Errorf("Postgres has %q", got)
	}
	if got, err := cache(t, s.Redis.URL()).Get(t.Context(), "kept").Result(); err != nil || got != "still here" {
		t.Errorf("Redis has %q, %v", got, err)
	}
}

// gone tells that the processes, the lock and what a start leaves are no more; the folder is kept or not.
func gone(t *testing.T, s *Stack, kept bool, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if exists(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	if s.Postgres.PID() != 0 || s.Redis.PID() != 0 || s.lock.Locked() {
		t.Errorf("it takes %d and %d for its processes; locked %t", s.Postgres.PID(), s.Redis.PID(), s.lock.Locked())
	}
	if _, err := os.Stat(s.Dir); (err == nil) != kept {
		t.Errorf("the folder: %v", err)
	}
	for _, file := range []string{"postgres/postmaster.pid", "redis/redis.pid", "initdb.password"} {
		if _, err := os.Stat(filepath.Join(s.Dir, file)); err == nil {
			t.Errorf("%s is still there", file)
		}
	}
}

func TestAStackKeepsItsDataAndLeavesNothingElseWhenItStops(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), `a "b" c\d's`) // blanks and quotes do no harm
	first := begin(t, Options{Dir: dir})
	pids := []int{first.Postgres.PID(), first.Redis.PID()}
	if !exists(pids[0]) || !exists(pids[1]) || pids[0] == pids[1] {
		t.Fatalf("processes %v", pids)
	}
	remember(t, first.Postgres.URL("postgres"), first.Redis.URL())
	for range 2 { // the second time it exists
		noError(t, first.Postgres.CreateDatabase(t.Context(), "shop"))
	}
	for _, setting := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if got := ask(t, first.Postgres.URL("shop"), "SHOW "+setting); got != "on" {
			t.Errorf("data that is to be kept, and %s is %s", setting, got)
		}
	}
	if got, err := cache(t, first.Redis.URL()).ConfigGet(t.Context(), "dir").Result(); err != nil || got["dir"] != filepath.Join(dir, "redis") {
		t.Errorf("Redis keeps its data in %q, %v", got["dir"], err)
	}
	noError(t, first.Stop())
	gone(t, first, true, pids...)
	second := begin(t, Options{Dir: dir, Unsafe: true})
	recalled(t, second)
	if err := second.Postgres.CreateDatabase(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
	if second.Postgres.pw != first.Postgres.pw || second.Redis.pw != first.Redis.pw {
		t.Error("the passwords changed")
	}
}

// Where the system tells servers that the process that started them has died, they end. Elsewhere the
// next start finds them.
func TestServersOfAKilledRunAreGoneWhenTheNextOneRuns(t *testing.T) {
	t.Parallel()
	for name, orphans := range map[string]bool{"told": false, "left over": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if runtime.GOOS != "linux" && !orphans {
				t.Skip("elsewhere the next start finds them")
			}
			dir, env := openDir(t), []string(nil)
			if orphans {
				env = []string{orphanVariable + "=1"}
			}
			run := play(t, "stack", append(env, dirVariable+"="+dir)...)
			remember(t, run.PostgresURL, run.RedisURL)
			run.kill(t)
			if orphans && (!exists(run.Postgres) || !exists(run.Redis)) {
				t.Fatal("nothing was left over")
			}
			if !orphans {
				eventually(t, "both servers are gone", func() bool { return !exists(run.Postgres) && !exists(run.Redis) })
			}
			s := begin(t, Options{Dir: dir, Unsafe: true})
			if exists(run.Postgres) || exists(run.Redis) {
				t.Errorf("a server is still there: Postgres %v, Redis %v", exists(run.Postgres), exists(run.Redis))
			}
			recalled(t, s)
		})
	}
}

func TestThrowAwayStacksOfKilledRunsAreRemovedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	place := filepath.Dir(openDir(t))
	old := time.Now().Add(-time.Hour)
	killed := play(t, "stack", "TMPDIR="+place, orphanVariable+"=1")
	killed.kill(t)
	if !exists(killed.Postgres) || !strings.HasPrefix(killed.Dir, place) {
		t.Fatalf("no leftovers: %+v", killed.told)
	}
	young := filepath.Join(place, strings.Replace(throwawayPattern, "*", "young", 1)) // about to be locked, say
	foreign := filepath.Join(place, "somebody-else")
	for _, dir := range []string{young, foreign} {
		noError(t, os.Mkdir(dir, 0o700))
	}
	for dir, made := range map[string]time.Time{killed.Dir: old, foreign: old, young: time.Now().Add(patience)} { // as long as this takes
		noError(t, os.Chtimes(dir, made, made))
	}
	live := play(t, "stack", "TMPDIR="+place) // which tidies up first
	if live.Error != "" {
		t.Fatal(live.Error)
	}
	if _, err := os.Stat(killed.Dir); err == nil {
		t.Error("the folder of the killed run is still there")
	}
	if exists(killed.Postgres) {
		t.Error("Postgres of the killed run is still there")
	}
	noError(t, os.Chtimes(live.Dir, old, old))
	play(t, "remove leftovers", "TMPDIR="+place)
	for _, dir := range []string{young, foreign, live.Dir} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("%s was removed", dir)
		}
	}
	ask(t, live.PostgresURL, `SELECT 'unharmed'`)
	if err := cache(t, live.RedisURL).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestNobodyGetsInWithoutThePasswordAndAThrowAwayStackLeavesNothing(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{Unsafe: true})
	for _, address := range []string{s.Postgres.URL("postgres"), s.Redis.URL()} {
		u, err := url.Parse(address)
		if err != nil || !net.ParseIP(u.Hostname()).IsLoopback() {
			t.Errorf("%s is not an address on loopback", address)
		}
	}
	if got := ask(t, s.Postgres.URL("postgres"), `SHOW listen_addresses`); got != "127.0.0.1" {
		t.Errorf("Postgres listens on %s", got)
	}
	wrong := strings.Replace(s.Postgres.URL("postgres"), s.Postgres.pw, "guess", 1)
	if conn, err := pgx.Connect(t.Context(), wrong); err == nil {
		_ = conn.Close(t.Context())
		t.Error("Postgres takes any password")
	}
	if out, err := exec.CommandContext(t.Context(), "redis-cli", "-u", s.Redis.URL(), "--no-auth-warning", "ping").CombinedOutput(); err != nil || string(out) != "PONG\n" {
		t.Errorf("redis-cli, as the runbooks have it: %v, %s", err, out) // release 7.0 refuses a password without a user
	}
	wrong = strings.Replace(s.Redis.URL(), "default:"+s.Redis.pw+"@", "", 1)
	if err := cache(t, wrong).Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("Redis answers %v", err)
	}
	for _, file := range []string{"postgres.password", "redis.password", "redis/redis.conf"} {
		info, err := os.Stat(filepath.Join(s.Dir, file))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	pids := []int{s.Postgres.PID(), s.Redis.PID()}
	noError(t, s.Stop())
	gone(t, s, false, pids...)
}
