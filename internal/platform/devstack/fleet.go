package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Fleet runs the real binaries against a Stack.
type Fleet struct {
	BinDir  string
	LogDir  string
	Env     []string      // settings for all, as TRIPRIZE_… variables
	Restart time.Duration // pause before a process that ended is started again; 0: it is not
	Changed func()
	Logger  *slog.Logger

	APIs       []*Child
	Workers    []*Child
	Schedulers []*Child
}

// stopGrace is longer than the processes' own limits on a shutdown.
const stopGrace = 40 * time.Second

// StartAPI starts an api that listens on listen.
func (f *Fleet) StartAPI(listen string, env ...string) (*Child, error) {
	c, err := f.start("api", len(f.APIs), append(env, "TRIPRIZE_API_LISTEN="+listen))
	f.APIs = append(f.APIs, c)
	return c, err
}

// StartWorker starts a worker.
func (f *Fleet) StartWorker(env ...string) (*Child, error) {
	c, err := f.start("worker", len(f.Workers), env)
	f.Workers = append(f.Workers, c)
	return c, err
}

// StartScheduler starts a scheduler.
func (f *Fleet) StartScheduler(env ...string) (*Child, error) {
	c, err := f.start("scheduler", len(f.Schedulers), env)
	f.Schedulers = append(f.Schedulers, c)
	return c, err
}

func (f *Fleet) start(kind string, n int, env []string) (*Child, error) {
	name := kind + "-" + strconv.Itoa(n+1)
	log := filepath.Join(f.LogDir, name+".log")
	c := &Child{Name: name, Restart: f.Restart, Changed: f.Changed, Logger: f.Logger, Command: func() *exec.Cmd {
		cmd := f.Command(kind, nil, env...)
		if out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			cmd.Stdout, cmd.Stderr = out, out // the child has the file open; the garbage collector closes it here
		}
		return cmd
	}}
	return c, c.Start()
}

// Command returns a command that runs a binary of the fleet with the settings in
// Env and env. It does not inherit TRIPRIZE_… variables from this process.
func (f *Fleet) Command(kind string, args []string, env ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(f.BinDir, kind), args...)
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "TRIPRIZE_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(append(cmd.Env, f.Env...), env...)
	cmd.SysProcAttr = attributes(nil)
	return cmd
}

// Stop stops all processes: the apis first, then schedulers, then workers.
func (f *Fleet) Stop() error {
	var failed []error
	for _, group := range [][]*Child{f.APIs, f.Schedulers, f.Workers} {
		for _, c := range group {
			failed = append(failed, c.Stop(syscall.SIGTERM, stopGrace))
		}
	}
	return errors.Join(failed...)
}

// AwaitHTTP waits until url answers 200.
func AwaitHTTP(ctx context.Context, url string) error {
	client := http.Client{Timeout: 2 * time.Second}
	return awaitReady(ctx, url, nil, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("answered %s", response.Status)
		}
		return nil
	})
}
