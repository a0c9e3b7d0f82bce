package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Fleet is Triprize on one machine: the real binaries, the simulators beside them, and
// their private servers.
type Fleet struct {
	BinDir  string
	LogDir  string
	Env     []string      // settings for all, as TRIPRIZE_… variables
	Restart time.Duration // pause before a process that ended is started again; 0: it is not
	Scraped bool          // every process shows its metrics on an address of its own
	Changed func()
	Logger  *slog.Logger
	Beside  []io.Closer // simulators; Stop closes them when the processes have ended
	Stack   *Stack      // Stop stops it last; nil: the servers are somebody else's

	APIs        []*Child
	Workers     []*Child
	Schedulers  []*Child
	URLs        []string // of the apis
	MetricsURLs []string // in the order in which the processes were started

	ready int               // apis that AwaitReady has seen ready
	first []<-chan struct{} // closed when the first process of an api has ended
}

// StartAPI starts an api that listens on listen; empty: on a free port.
func (f *Fleet) StartAPI(listen string, env ...string) (*Child, error) {
	if listen == "" {
		var err error
		if listen, err = FreeAddress(); err != nil {
			return nil, err
		}
	}
	f.URLs = append(f.URLs, "http://"+listen)
	c, err := f.start(&f.APIs, "api", "TRIPRIZE_API_METRICS_LISTEN", append(env, "TRIPRIZE_API_LISTEN="+listen))
	if err == nil {
		f.first = append(f.first, c.Exited())
	}
	return c, err
}

// StartWorker starts a worker.
func (f *Fleet) StartWorker(env ...string) (*Child, error) {
	return f.start(&f.Workers, "worker", "TRIPRIZE_WORKER_LISTEN", env)
}

// StartScheduler starts a scheduler.
func (f *Fleet) StartScheduler(env ...string) (*Child, error) {
	return f.start(&f.Schedulers, "scheduler", "TRIPRIZE_SCHEDULER_LISTEN", env)
}

// start starts a process of a kind. scraped is the setting of the address of its metrics.
func (f *Fleet) start(group *[]*Child, kind, scraped string, env []string) (*Child, error) {
	if f.Scraped {
		address, err := FreeAddress()
		if err != nil {
			return nil, err
		}
		env = append(env, scraped+"="+address)
		f.MetricsURLs = append(f.MetricsURLs, "http://"+address+"/metrics")
	}
	name := kind + "-" + strconv.Itoa(len(*group)+1)
	c := &Child{Name: name, Restart: f.Restart, Changed: f.Changed, Logger: f.Logger, Command: func() *exec.Cmd {
		cmd := f.Command(kind, nil, env...)
		if out, err := os.OpenFile(f.logFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			cmd.Stdout, cmd.Stderr = out, out // the child has the file open; the garbage collector closes it here
		}
		return cmd
	}}
	*group = append(*group, c)
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

func (f *Fleet) logFile(name string) string { return filepath.Join(f.LogDir, name+".log") }

// LogTail returns the end of a process's log, which says why it has ended; empty if it
// cannot be read.
func (f *Fleet) LogTail(name string) string {
	const most = 2000
	data, _ := os.ReadFile(f.logFile(name))
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
}

// PIDs returns the ids of the processes of a group that run.
func PIDs(group []*Child) []int {
	running := []int{}
	for _, c := range group {
		if pid := c.PID(); pid != 0 {
			running = append(running, pid)
		}
	}
	return running
}

// Stop stops everything: the apis first, then schedulers, then workers, then simulators,
// then the servers.
func (f *Fleet) Stop() error {
	var failed []error
	for _, group := range [][]*Child{f.APIs, f.Schedulers, f.Workers} {
		for _, c := range group {
			failed = append(failed, c.Stop(syscall.SIGTERM, stopTimeout))
		}
	}
	for _, simulator := range f.Beside {
		failed = append(failed, simulator.Close())
	}
	if f.Stack != nil {
		failed = append(failed, f.Stack.Stop())
	}
	return errors.Join(failed...)
}

var errEnded = errors.New("the api ended instead of getting ready")

// AwaitReady waits until all apis that were started are ready.
func (f *Fleet) AwaitReady(ctx context.Context) error {
	for ; f.ready < len(f.first); f.ready++ {
		api := f.APIs[f.ready]
		if err := awaitAPI(ctx, api, f.first[f.ready], f.URLs[f.ready]); err != nil {
			return fmt.Errorf("%w; the logs are in %s:\n%s", err, f.LogDir, f.LogTail(api.Name))
		}
	}
	return nil
}

// awaitAPI fails when the first process of an api exits by itself, because the next ones
// would fail for the same reason. A killed process is started again, so waiting goes on.
func awaitAPI(ctx context.Context, api *Child, first <-chan struct{}, url string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-first:
			if !api.Killed() {
				cancel(errEnded)
			}
		case <-ctx.Done():
		}
	}()
	err := AwaitHTTP(ctx, url+"/readyz")
	select {
	case <-first:
		if !api.Killed() { // then another program has answered
			return errEnded
		}
	default:
	}
	return err
}

// AwaitHTTP waits until url answers 200.
func AwaitHTTP(ctx context.Context, url string) error {
	return awaitReady(ctx, url, nil, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
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
