package devstack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary runs itself when a test needs another process, which is then
// told by these variables what to do.
const (
	roleVariable   = "DEVSTACK_TEST_ROLE"
	dirVariable    = "DEVSTACK_TEST_DIR"
	orphanVariable = "DEVSTACK_TEST_ORPHANS" // servers outlive the process that started them
)

// told is what another process says of itself.
type told struct {
	Dir             string
	Postgres, Redis int // process ids
	PostgresURL     string
	RedisURL        string
	Error           string
}

func TestMain(m *testing.M) {
	var say told
	end := func() error { return nil }
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "stack":
		say, end = playStack()
	case "remove leftovers":
		RemoveLeftovers()
	default:
		say.Error = "there is no role " + role
	}
	_ = json.NewEncoder(os.Stdout).Encode(say)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test, or its process, ends
	if err := end(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// playStack runs a stack in the folder of the environment.
func playStack() (say told, end func() error) {
	ctx := context.Background()
	s, err := Start(ctx, Options{Dir: os.Getenv(dirVariable), Unsafe: true})
	if err != nil {
		return told{Error: err.Error()}, func() error { return nil }
	}
	if os.Getenv(orphanVariable) != "" {
		err = errors.Join(s.Postgres.Stop(), s.Redis.Stop(), startOrphan(s.Postgres.Child), startOrphan(s.Redis.Child))
		err = errors.Join(err, s.Postgres.awaitReady(ctx), s.Redis.awaitReady(ctx))
	}
	return told{Dir: s.Dir, Postgres: s.Postgres.PID(), Redis: s.Redis.PID(), PostgresURL: s.Postgres.URL("postgres"), RedisURL: s.Redis.URL(), Error: text(err)}, s.Stop
}

// startOrphan starts a child as on systems where it is not told that its parent died.
func startOrphan(c *Child) error {
	command := c.Command
	c.Command = func() *exec.Cmd {
		cmd := command()
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: cmd.SysProcAttr.Credential}
		return cmd
	}
	return c.Start()
}

// process is another process that plays a role.
type process struct {
	told
	cmd   *exec.Cmd
	stdin io.Closer
}

// play starts another process and returns when it has said what there is to say.
func play(t *testing.T, role string, env ...string) *process {
	t.Helper()
	self, err := os.Executable()
	noError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), env...), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	noError(t, err)
	stdout, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	p := &process{cmd: cmd, stdin: stdin}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
		for _, pid := range []int{p.Postgres, p.Redis} {
			if pid != 0 && exists(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.told)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", role, err, line)
	}
	return p
}

// kill kills the process as nobody can foresee, and waits for its end.
func (p *process) kill(t *testing.T) {
	t.Helper()
	noError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// exists tells whether a process runs. One that has ended but whose parent has
// not asked how does not.
func exists(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(string(out), "Z")
}

// openDir returns a folder, not made yet, that the user of Postgres can be let into.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "triprize-test-*")
	noError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	noError(t, os.Chmod(dir, 0o711))
	return filepath.Join(dir, "data")
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience ends a test that would hang. Package fixture has the same, and eventually;
// it cannot be used here, as it uses this package.
const patience = 5 * time.Minute

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to be: %s", what)
		}
	}
}

func TestAPIDFileEndsOnlyTheProcessItMeans(t *testing.T) {
	t.Parallel()
	c := &Child{Name: "child", Command: func() *exec.Cmd { return exec.Command("sleep", "1000") }, Logger: slog.New(slog.DiscardHandler)}
	noError(t, c.Start())
	t.Cleanup(func() { _ = c.Stop(syscall.SIGKILL, patience) })
	pid := c.PID()
	file := filepath.Join(t.TempDir(), "child.pid")
	follow := func(content, what string) {
		t.Helper()
		noError(t, os.WriteFile(file, []byte(content), 0o600))
		if err := stopLeftover(file, what, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("the file with %q is still there", content)
		}
	}
	follow(fmt.Sprintf("%d\n", pid), "redis-server") // the id was used again, by somebody else
	follow("soon\n", "sleep")
	follow("", "sleep")
	if !exists(pid) {
		t.Fatal("a process that was not meant is gone")
	}
	follow(fmt.Sprintf(" %d \n/some/folder\n5432\n", pid), "sleep")
	if exists(pid) {
		t.Error("the leftover is still there")
	}
	follow(fmt.Sprintf("%d\n", pid), "sleep") // which is gone
	if err := stopLeftover(file, "sleep", syscall.SIGTERM); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// Redis refuses to stop while it writes its first append-only file.
func TestAServerThatRefusesASignalGetsAnother(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	start := func() *Child {
		c := &Child{Name: "child", Insist: true, Logger: slog.New(slog.DiscardHandler), Command: func() *exec.Cmd {
			return exec.Command("sh", "-c", `trap "trap - TERM" TERM; : > "$0"; while :; do sleep .05; done`, ready)
		}}
		noError(t, os.RemoveAll(ready))
		noError(t, c.Start())
		t.Cleanup(func() { _ = c.Stop(syscall.SIGKILL, patience) })
		eventually(t, "it has its trap", func() bool { _, err := os.Stat(ready); return err == nil })
		return c
	}
	noError(t, start().Stop(syscall.SIGTERM, patience))
	file := filepath.Join(t.TempDir(), "child.pid")
	noError(t, os.WriteFile(file, fmt.Appendln(nil, start().PID()), 0o600))
	noError(t, stopLeftover(file, ready, syscall.SIGTERM))
}

func TestProcessesThatAreNoLeftoversAreNeverMeant(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{1, 0, -1, -os.Getpid()} { // init, and groups of processes
		if runs(pid, "") {
			t.Errorf("%d would be sent a signal", pid)
		}
	}
	if !runs(os.Getpid(), "devstack") {
		t.Error("it does not know us")
	}
}
