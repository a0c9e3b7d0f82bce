package fleet

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"

	"triprize/internal/key"
)

// shared are the systems that the tests of this binary use at once, by their options.
var shared = struct {
	mu      sync.Mutex
	systems map[string]*System
	views   int
	life    life
}{systems: make(map[string]*System)}

// Shared gives a test a view of a system that all tests with these options share. It is
// started for the first of them and runs to the end of the binary; then it is audited
// once, and what is broken fails the binary.
//
// A view has clients of its own: their keys, and so the idempotency keys, jobs and
// endpoints. A test uses its own campaigns and, where a list or a wallet is of a user,
// users of its own ([System.User]). It may run further apis, with settings of their own,
// that end with it. A test that stops processes, counts whole tables, runs sweeps or reads
// the metrics of a whole process starts a system of its own ([Start]).
func Shared(t *testing.T, o Options) *System {
	t.Helper()
	if o.Binaries || o.Private || o.Sandbox != nil || o.Beacon > 0 {
		t.Fatal("a shared system runs inside the tests, with nothing beside it")
	}
	base, suffix := sharedBase(t, o)
	s := &System{T: t, life: t, Settings: base.Settings, DB: base.DB, Redis: base.Redis, URLs: slices.Clone(base.URLs), env: base.env,
		metrics: maps.Clone(base.metrics), shared: base, suffix: suffix, name: nameOf(t) + suffix}
	t.Cleanup(s.leave)
	s.Operator, s.App = s.NewKeyOf(key.Operator, "ops"), s.NewKey("shop")
	return s
}

// sharedBase returns the system with some options, started for the first test that asks, and the suffix of a new view.
func sharedBase(t *testing.T, o Options) (base *System, suffix string) {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.views++
	options := fmt.Sprintf("%+v", o)
	if base = shared.systems[options]; base == nil {
		base = &System{T: t, life: &shared.life}
		base.start(o)
		shared.systems[options] = base
	}
	return base, fmt.Sprintf("-%d", shared.views)
}

// endShared stops the shared systems and audits them. It tells whether all was well.
func endShared() bool {
	for _, base := range shared.systems {
		base.end()
	}
	for _, do := range slices.Backward(shared.life.cleanups) {
		do()
	}
	return !shared.life.failed
}

// leave ends what a test has started beside its shared system, and shows what the logs
// say of the test when it failed.
func (s *System) leave() {
	s.stop()
	own := slices.DeleteFunc(slices.Clone(s.URLs), func(url string) bool { return slices.Contains(s.shared.URLs, url) })
	s.checkContract(append(hosts(own), s.name)...)
	if !s.T.Failed() {
		return
	}
	s.showLogs()
	for _, process := range s.shared.inside {
		var own []byte
		for line := range bytes.Lines([]byte(process.log.String())) {
			if Contains(line, s.name+":") {
				own = append(own, line...)
			}
		}
		s.T.Logf("%s, of this test:\n%s", process.name, Tail(own, 4000))
	}
}

// With starts an api of the test's own, with further settings, and leads the test's
// requests to it instead of the shared ones.
func (s *System) With(env ...string) *System {
	s.T.Helper()
	s.RunAPI(env...)
	s.URLs = s.URLs[len(s.URLs)-1:]
	return s
}

// unnamed is what the id of a request may not have in it.
var unnamed = regexp.MustCompile(`[^A-Za-z0-9._/-]`)

// nameOf makes a test's name fit the id of a request.
func nameOf(t *testing.T) string {
	name := unnamed.ReplaceAllString(t.Name(), "_")
	return name[:min(len(name), 100)]
}

// Client is the name of a client of this test: its app's is Client("shop"), its
// operator's Client("ops").
func (s *System) Client(name string) string { return name + s.suffix }

// User is the name of a user of this test only.
func (s *System) User(name string) string { return name + s.suffix }

// life is the life of a test binary, for what a test would do at its end.
type life struct {
	testing.TB
	failed   bool
	cleanups []func()
}

func (l *life) Context() context.Context { return context.Background() }
func (l *life) Helper()                  {}
func (l *life) Cleanup(do func())        { l.cleanups = append(l.cleanups, do) }
func (l *life) Failed() bool             { return l.failed }
func (l *life) Logf(string, ...any)      {} // the tests that failed have shown what the logs say of them

// Error fails the binary.
func (l *life) Error(args ...any) {
	l.failed = true
	_, _ = fmt.Fprintln(os.Stdout, args...)
}

func (l *life) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

// Fatal fails the test that a shared system is started for, as nothing is as it should be.
func (l *life) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (l *life) Fatalf(format string, args ...any) { l.Fatal(fmt.Sprintf(format, args...)) }
