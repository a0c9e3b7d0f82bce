package fleet

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"triprize/internal/entry/boot"
	"triprize/internal/platform/config"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/servers"
)

// inside is a process that runs inside the test.
type inside struct {
	name    string
	stop    context.CancelFunc
	ended   chan error
	stopped bool
	log     servers.Journal
}

// runInside starts a process inside the test, with settings from variables as a
// real one has them.
func (s *System) runInside(kind string, run func(context.Context, *boot.Process) error, env ...string) {
	s.T.Helper()
	if s.shared != nil && kind != "api" {
		s.T.Fatalf("a %s of this test would do the work of all tests that share the system", kind)
	}
	settings, err := config.LoadFrom("", append(slices.Clone(s.env), env...))
	servers.NoError(s.T, err)
	n := 1
	for _, p := range s.processes() {
		if strings.HasPrefix(p.name, kind+"-") {
			n++
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &inside{name: fmt.Sprintf("%s-%d", kind, n), stop: stop, ended: make(chan error, 1)}
	s.inside = append(s.inside, p)
	go func() { p.ended <- boot.Run(ctx, kind, settings, telemetry.NewLogger(settings.Log, kind, &p.log), run) }()
}

// processes returns those inside that the test sees: of a view, also those it shares.
func (s *System) processes() []*inside {
	if s.shared == nil {
		return s.inside
	}
	return slices.Concat(s.shared.inside, s.inside)
}

// StopAll stops every process of a kind (api, worker, scheduler) that runs inside
// the test, and waits until it has ended.
func (s *System) StopAll(kind string) {
	s.life.Helper()
	var stopped []*inside
	for _, p := range s.inside {
		if strings.HasPrefix(p.name, kind+"-") && !p.stopped {
			p.stop()
			p.stopped = true
			stopped = append(stopped, p)
		}
	}
	for _, p := range stopped {
		if err := <-p.ended; err != nil {
			s.life.Errorf("%s ended with %v", p.name, err)
		}
	}
}

func (s *System) log(name string) ([]byte, error) {
	for _, p := range s.processes() {
		if p.name == name {
			return []byte(p.log.String()), nil
		}
	}
	if s.Fleet == nil {
		return nil, fmt.Errorf("there is no process %s", name)
	}
	return os.ReadFile(filepath.Join(s.LogDir, name+".log")) //nolint:gosec // names of this package
}

// built are the programs, for all tests of a package.
var built struct {
	sync.Once
	dir       string
	temporary bool
	err       error
}

// Binaries builds the programs, with failpoints, once for all tests of a package, and returns
// their folder. With TRIPRIZE_TEST_BINARIES they are in that folder already: make test
// builds them once for all packages.
func Binaries() (dir string, err error) {
	_ = os.Getenv("TRIPRIZE_TEST_RUN") // so that Go does not take results from another run
	built.Do(func() {
		if ready := os.Getenv("TRIPRIZE_TEST_BINARIES"); ready != "" {
			built.dir = ready
			return
		}
		built.temporary = true
		if built.dir, built.err = os.MkdirTemp("", "triprize-bin-*"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-tags", "failpoint", "-ldflags", "-s -w", "-o", built.dir+"/", "triprize/cmd/...") //nolint:gosec // the arguments are this package's own
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	return built.dir, built.err
}

// Main runs the tests of a package that uses systems.
func Main(m *testing.M) {
	servers.Main(auditing{m}, func() {
		if built.temporary {
			_ = os.RemoveAll(built.dir)
		}
	})
}

// auditing runs tests, and then ends the systems that they have shared.
type auditing struct{ tests *testing.M }

// Run returns the status of the tests, or 1 when a shared system is not sound.
func (a auditing) Run() int {
	status := a.tests.Run()
	if !endShared() {
		status = max(status, 1)
	}
	return status
}

// NodeEnv returns what the environment of Node.js needs beside that of the test. Node.js 18,
// which some distributions have, keeps the Web Crypto API behind a flag; 20 and newer do not.
func NodeEnv(t *testing.T) []string {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		t.Fatalf("Node.js does not run (make npm installs it): %v", err)
	}
	if strings.HasPrefix(string(version), "v18.") {
		return []string{"NODE_OPTIONS=--experimental-global-webcrypto"}
	}
	return nil
}

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
	servers.NoError(t, err)
	at.User = url.UserPassword("triprize_app", password)
	return at.String()
}
