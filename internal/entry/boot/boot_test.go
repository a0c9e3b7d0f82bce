package boot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/entry/httpapi"
	"triprize/internal/key"
	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

// roleVariable makes this test binary a process of the fleet that plays a role.
const roleVariable = "BOOT_TEST_ROLE"

func TestMain(m *testing.M) {
	if role, ok := roles[os.Getenv(roleVariable)]; ok {
		flags := flag.NewFlagSet("actor", flag.ExitOnError)
		loud := flags.Bool("loud", false, "a flag of its own")
		Main("actor", flags, func(ctx context.Context, p *Process) error {
			if err := p.Await(ctx); err != nil {
				return err
			}
			say("started")
			return role(ctx, p, *loud)
		})
		os.Exit(0)
	}
	servers.Main(m)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := devstack.FreeAddress()
	servers.NoError(t, err)
	return address
}

func say(line string) { _, _ = os.Stdout.WriteString(line + "\n") }

var roles = map[string]func(ctx context.Context, p *Process, loud bool) error{
	"report": func(ctx context.Context, p *Process, loud bool) error {
		_, keyErr := p.DrawKey()
		var application string
		err := p.DB.QueryRow(ctx, `SHOW application_name`).Scan(&application)
		p.Logger.Info("a line of the log")
		slog.Info("a line of a library")
		metrics, gatherErr := p.Registry.Gather()
		release, lockErr := p.Locks.Acquire(ctx, "a")
		defer release()
		ready := p.Health.Ready()
		say(fmt.Sprintf("%s loud=%t %s key=%t metrics=%t locked=%t quorum=%t %s %v", p.Name, loud, application, keyErr == nil, len(metrics) > 0,
			lockErr == nil && p.Locks.AcquireFunc() != nil, !errors.Is(lockErr, lock.ErrNoQuorum), ready.Status, ready.Checks))
		return errors.Join(err, gatherErr)
	},
	"fail": func(context.Context, *Process, bool) error { return errors.New("the roof fell in") },
	"key":  func(_ context.Context, p *Process, _ bool) error { _, err := p.DrawKey(); return err },
	"drain": func(ctx context.Context, _ *Process, _ bool) error {
		<-ctx.Done()
		say("draining")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	},
	"api": func(ctx context.Context, p *Process, _ bool) error { return API(httpapi.New)(ctx, p) },
}

// actor is a process of the fleet.
type actor struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
	done   bool
}

// environment returns the settings of a process as variables, with no others of ours but bounds that no machine is too slow for.
func environment(settings config.Settings) (env []string) {
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "TRIPRIZE_") {
			env = append(env, pair)
		}
	}
	return append(env, "TRIPRIZE_POSTGRES_URL="+settings.Postgres.URL, "TRIPRIZE_REDIS_URL="+settings.Redis.URL,
		"TRIPRIZE_REDIS_NAMESPACE="+settings.Redis.Namespace, "TRIPRIZE_DRAW_SECRET_KEY="+settings.Draw.SecretKey,
		"TRIPRIZE_POSTGRES_CONNECT_TIMEOUT=10m", "TRIPRIZE_POSTGRES_STATEMENT_TIMEOUT=10m", "TRIPRIZE_POSTGRES_LOCK_TIMEOUT=10m", "TRIPRIZE_API_REQUEST_TIMEOUT=10m")
}

// act starts a process that plays a role.
func act(t *testing.T, role string, env []string, args ...string) *actor {
	t.Helper()
	self, err := os.Executable()
	servers.NoError(t, err)
	a := &actor{cmd: exec.Command(self, args...)}
	a.cmd.Env = append(env, roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	a.cmd.Stderr = &a.stderr
	a.stdin, err = a.cmd.StdinPipe()
	servers.NoError(t, err)
	stdout, err := a.cmd.StdoutPipe()
	servers.NoError(t, err)
	a.stdout = bufio.NewReader(stdout)
	servers.NoError(t, a.cmd.Start())
	t.Cleanup(func() {
		if !a.done {
			_ = a.cmd.Process.Kill()
			_ = a.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%s: %s", role, a.stderr.String())
		}
	})
	return a
}

// hear awaits a line that the process says.
func (a *actor) hear(t *testing.T, want string) {
	t.Helper()
	if line, err := a.stdout.ReadString('\n'); line != want+"\n" {
		t.Fatalf("it says %q, %v", line, err)
	}
}

// end awaits the end of the process and returns what else it said.
func (a *actor) end(t *testing.T) (said string, status syscall.WaitStatus) {
	t.Helper()
	watchdog := time.AfterFunc(servers.Patience, func() { _ = a.cmd.Process.Kill() })
	rest, err := io.ReadAll(a.stdout)
	servers.NoError(t, err)
	_ = a.cmd.Wait()
	a.done = true
	if !watchdog.Stop() {
		t.Fatal("it did not end")
	}
	return string(rest), a.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func (a *actor) signal(t *testing.T, s os.Signal) {
	t.Helper()
	servers.NoError(t, a.cmd.Process.Signal(s))
}

// refused runs a process that must end before it has begun, with a status and a reason.
func refused(t *testing.T, status int, env []string, args []string, reasons ...string) (stderr string) {
	t.Helper()
	a := act(t, "report", env, args...)
	said, got := a.end(t)
	if got.ExitStatus() != status || said != "" {
		t.Errorf("status %d after it said %q", got.ExitStatus(), said)
	}
	for _, want := range reasons {
		if !strings.Contains(a.stderr.String(), want) {
			t.Errorf("%q does not say %q", a.stderr.String(), want)
		}
	}
	return a.stderr.String()
}

func TestBadSettingsAreRefusedWithTheirNamesAndReasons(t *testing.T) {
	t.Parallel()
	env := environment(servers.Defaults(t)) // nothing is connected to
	file := t.TempDir() + "/settings.yaml"
	servers.NoError(t, os.WriteFile(file, []byte("worker:\n  lames: 3\n"), 0o600))
	for name, c := range map[string]struct {
		env  []string
		args []string
		want []string
	}{
		"out of bounds, all of them": {env: []string{"TRIPRIZE_WORKER_SHARDS=0", "TRIPRIZE_API_LISTEN=here"}, want: []string{"actor does not start:\n",
			"setting worker.shards (TRIPRIZE_WORKER_SHARDS): is 0, must be at least 1", "setting api.listen (TRIPRIZE_API_LISTEN): is \"here\", must be host:port"}},
		"unknown":              {env: []string{"TRIPRIZE_WORKER_LAMES=3"}, want: []string{"actor does not start:\n", "unknown setting TRIPRIZE_WORKER_LAMES"}},
		"a URL that is none":   {env: []string{"TRIPRIZE_REDIS_URL=redisfoo"}, want: []string{"setting redis.url (TRIPRIZE_REDIS_URL): must be a URL, redis://"}},
		"in a file":            {args: []string{"--config", file}, want: []string{"actor does not start:\n", file, "unknown setting worker.lames"}},
		"a file that is away":  {args: []string{"--config", file + "x"}, want: []string{"actor does not start:\n", file + "x"}},
		"an unknown flag":      {args: []string{"--quick"}, want: []string{"-quick", "-loud", "-config"}},
		"what is not a flag":   {args: []string{"--loud", "quickly"}, want: []string{`actor: unexpected argument "quickly"`}},
		"a file named by hand": {env: []string{config.FileVariable + "=" + file}, want: []string{"unknown setting worker.lames"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, 2, append(env[:len(env):len(env)], c.env...), c.args, c.want...)
		})
	}
}

func TestWithoutPostgresOrItsSchemaAProcessSaysSoAndNotThePassword(t *testing.T) {
	t.Parallel()
	nobody := freeAddress(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, answers nothing
	servers.NoError(t, err)
	defer func() { _ = mute.Close() }()
	refusing, err := url.Parse(servers.Settings(t).Postgres.URL)
	servers.NoError(t, err)
	refusing.User = url.UserPassword("stranger", "hunter2")
	never := servers.Settings(t)
	servers.Exec(t, servers.Pool(t, never), `DROP SCHEMA public CASCADE; CREATE SCHEMA public`)
	for name, c := range map[string]struct {
		url  string
		wait string // for Postgres
		want []string
	}{
		"nobody is there":                     {"postgres://triprize:hunter2@" + nobody + "/shop", "0", []string{"actor: ", nobody, "database=shop", "connection refused"}},
		"nobody answers":                      {"postgres://triprize:hunter2@" + mute.Addr().String() + "/shop", "0", []string{"actor: ", mute.Addr().String(), "database=shop"}},
		"not for 3 s":                         {"postgres://triprize:hunter2@" + nobody + "/shop", "3s", []string{"not ready after 3s", "failed to connect"}},
		"with a bad port":                     {"postgres://triprize:hunter2@127.0.0.1:70000/shop", "0", []string{"actor: ", "postgres.url"}},
		"with a bad option":                   {"postgres://triprize:hunter2@" + nobody + "/shop?sslmode=maybe", "0", []string{"actor: ", "postgres.url"}},
		"it was never migrated":               {never.Postgres.URL, "0", []string{"actor: ", "older than this program", "triprize migrate up"}},
		"a user it refuses is not waited for": {refusing.String(), "1h", []string{"stranger"}},
	} {
		t.Run(name, func(t *testing.T) {
			settings := servers.Defaults(t)
			settings.Postgres.URL, settings.Redis.URL = c.url, "redis://"+nobody+"/0"
			env := append(environment(settings), "TRIPRIZE_POSTGRES_START_WAIT="+c.wait)
			if strings.Contains(c.url, mute.Addr().String()) {
				env = append(env, "TRIPRIZE_POSTGRES_CONNECT_TIMEOUT=200ms")
			}
			if stderr := refused(t, 1, env, nil, c.want...); strings.Contains(stderr, "hunter2") {
				t.Errorf("the password is in the log: %s", stderr)
			}
		})
	}
}

// reports wants a process to report this, and returns what it logs. A busy machine may need more than one process until
// each check has its answer in time.
func reports(t *testing.T, want string, env []string, args ...string) (log string) {
	t.Helper()
	servers.Eventually(t, want, func() bool {
		a := act(t, "report", env, args...)
		a.hear(t, "started")
		said, status := a.end(t)
		if log = a.stderr.String(); !status.Exited() || status.ExitStatus() != 0 {
			t.Fatalf("status %d, %q", status.ExitStatus(), said)
		}
		if said != want+"\n" {
			t.Log(said)
		}
		return said == want+"\n"
	})
	return log
}

func TestAProcessHasWhatItNeedsAtHand(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	log := reports(t, "actor loud=true triprize-actor key=true metrics=true locked=true quorum=true ok map[postgres:ok redis:ok]", environment(settings), "--loud")
	for _, want := range []string{`"msg":"a line of the log"`, `"msg":"a line of a library"`, `"msg":"stopped"`} {
		if !strings.Contains(log, want) {
			t.Errorf("%s is not in the log: %s", want, log)
		}
	}
	// Redis is a helper: without it a process starts all the same, and says so.
	settings.Redis.URL, settings.Draw.SecretKey = "redis://"+freeAddress(t)+"/0", ""
	reports(t, "actor loud=false triprize-actor key=false metrics=true locked=false quorum=false degraded map[postgres:ok redis:unavailable]", environment(settings))
}

func TestConnectionsLeaveFilesForTheRest(t *testing.T) {
	t.Parallel()
	for files, want := range map[uint64]int{100: 1, 1024: 768, 10_255: 9999, 10_256: 10_000, math.MaxUint64: 10_000} {
		if got := fitting(10_000, files); got != want {
			t.Errorf("with %d files %d connections", files, got)
		}
	}
}

// While Redis is away nobody can tell what it is. A replica may become the primary.
func TestARedisOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	settings, server, log := servers.Patient(servers.Settings(t)), servers.OwnRedis(t), &servers.Journal{}
	settings.Redis.URL = strings.Replace(server.URL(), "redis:", "redis+cluster:", 1)
	p := started(t, settings)
	p.Logger = slog.New(slog.NewTextHandler(log, nil))
	server.Kill()
	servers.NoError(t, p.Await(t.Context()))
	servers.NoError(t, server.RestartAfter(t.Context(), 0))
	servers.Eventually(t, "/readyz checks it", func() bool { return errors.Is(p.checkRedis(t.Context()), redisx.ErrKind) })
	if err := p.checkRedis(t.Context()); !errors.Is(err, redisx.ErrKind) || strings.Count(log.String(), "Redis is not used") != 1 {
		t.Errorf("the next check: %v, and the log has %s", err, log)
	}
	if err := p.Await(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "setting redis.url (TRIPRIZE_REDIS_URL): names no node") {
		t.Errorf("it starts: %v", err)
	}
	settings.Redis.URL = server.URL()
	p = started(t, settings)
	servers.NoError(t, p.Redis.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	servers.NoError(t, p.Await(t.Context()))
	if err := p.checkRedis(t.Context()); !errors.Is(err, redisx.ErrReplica) {
		t.Errorf("a replica: %v", err)
	}
}

func TestTheStatusTellsHowAProcessEnded(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	failed := act(t, "fail", environment(settings))
	failed.hear(t, "started")
	if _, status := failed.end(t); status.ExitStatus() != 1 || !strings.Contains(failed.stderr.String(), "actor: the roof fell in") {
		t.Errorf("status %d, %s", status.ExitStatus(), failed.stderr.String())
	}
	settings.Draw.SecretKey = ""
	keyless := act(t, "key", environment(settings))
	if _, status := keyless.end(t); status.ExitStatus() == 0 {
		t.Error("it runs without a key")
	}
	for _, want := range []string{"setting draw.secret_key (TRIPRIZE_DRAW_SECRET_KEY)", "is required by actor", "openssl rand -hex 32"} {
		if !strings.Contains(keyless.stderr.String(), want) {
			t.Errorf("%q does not say %q", keyless.stderr.String(), want)
		}
	}
}

func TestASignalLetsAProcessFinishAndASecondEndsItAtOnce(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	for name, s := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient := act(t, "drain", environment(settings))
			patient.hear(t, "started")
			patient.signal(t, s)
			patient.hear(t, "draining")
			if _, err := io.WriteString(patient.stdin, "enough\n"); err != nil {
				t.Fatal(err)
			}
			if _, status := patient.end(t); !status.Exited() || status.ExitStatus() != 0 || !strings.Contains(patient.stderr.String(), `"msg":"stopped"`) {
				t.Errorf("status %x, %s", status, patient.stderr.String())
			}
			urged := act(t, "drain", environment(settings))
			urged.hear(t, "started")
			urged.signal(t, s)
			urged.hear(t, "draining")
			eventuallyEnds(t, urged, s)
		})
	}
}

// eventuallyEnds repeats a signal until it has its ordinary effect: when the
// process says that it drains it may be about to let go of signals.
func eventuallyEnds(t *testing.T, a *actor, s syscall.Signal) {
	t.Helper()
	over := make(chan struct{})
	defer close(over)
	go func() {
		for tick := time.Tick(20 * time.Millisecond); ; {
			_ = a.cmd.Process.Signal(s)
			select {
			case <-over:
				return
			case <-tick:
			}
		}
	}()
	if _, status := a.end(t); !status.Signaled() || status.Signal() != s {
		t.Errorf("status %x", status)
	}
}

func TestAnAPIWithAKeyOfStripeNeedsTheSecretOfItsWebhooks(t *testing.T) {
	t.Parallel()
	settings := servers.Defaults(t)
	settings.Payments.Stripe.Key = "sk_test_hunter2"
	err := API(httpapi.New)(t.Context(), &Process{Name: "api", Settings: settings})
	if err == nil || !strings.Contains(err.Error(), "setting payments.stripe.webhook_secret (TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET): is required") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// busy starts an api and holds up a request in the database until it is
// released. The status of its answer, or 0 when there is none, is sent to answered.
func busy(t *testing.T, env ...string) (api *actor, address string, release func(), answered chan int) {
	t.Helper()
	settings := servers.Settings(t)
	db := servers.Pool(t, settings)
	key, err := key.Create(t.Context(), db, key.Operator, "ops")
	servers.NoError(t, err)
	address = freeAddress(t)
	api = act(t, "api", append(append(environment(settings), "TRIPRIZE_API_LISTEN="+address), env...))
	api.hear(t, "started")
	servers.NoError(t, devstack.AwaitHTTP(t.Context(), "http://"+address+"/readyz"))
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	release = func() { _ = tx.Rollback(context.Background()) }
	t.Cleanup(release)
	servers.Exec(t, tx, `SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE campaigns`)
	answered = make(chan int, 1)
	go func() {
		request, _ := http.NewRequest(http.MethodGet, "http://"+address+"/v1/campaigns", nil)
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := (&http.Client{Timeout: servers.Patience}).Do(request)
		if err != nil {
			answered <- 0
			return
		}
		_ = response.Body.Close()
		answered <- response.StatusCode
	}()
	servers.AwaitBlocked(t, db, 1)
	select {
	case status := <-answered:
		t.Fatalf("the request was not held up: %d", status)
	default:
	}
	return api, address, release, answered
}

func TestAShutdownFinishesTheRequestAtHandAndTakesNoOther(t *testing.T) {
	t.Parallel()
	api, address, release, answered := busy(t, "TRIPRIZE_API_SHUTDOWN_TIMEOUT=10m")
	api.signal(t, syscall.SIGTERM)
	servers.Eventually(t, "it takes no more connections", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case status := <-answered:
		t.Errorf("the request got %d before it could be done", status)
	default:
	}
	release()
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the request got %d", status)
	}
	if _, status := api.end(t); !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("status %x", status)
	}
}

func TestAShutdownKeepsItsLimitWhenARequestDoesNotEnd(t *testing.T) {
	t.Parallel()
	api, _, release, answered := busy(t, "TRIPRIZE_API_SHUTDOWN_TIMEOUT=200ms")
	api.signal(t, syscall.SIGTERM)
	_, status := api.end(t) // before the request, which is held up still
	if status.ExitStatus() != 0 || !strings.Contains(api.stderr.String(), "cut off at shutdown") {
		t.Errorf("status %d, and nobody was told: %s", status.ExitStatus(), api.stderr.String())
	}
	release()
	<-answered
}
