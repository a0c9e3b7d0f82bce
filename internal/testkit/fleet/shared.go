package fleet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/entry/upkeep"
	"triprize/internal/key"
)

// sharing is the systems that several tests use at once.
type sharing struct {
	starting sync.Mutex
	systems  map[string]*System // by their options
	life     life

	mu     sync.Mutex
	views  int
	owners map[uuid.UUID]string // the test that has made, or first asked for, what has this id
}

// ofBinary is what the tests of this binary share.
var ofBinary = newSharing(os.Stdout)

func newSharing(out io.Writer) *sharing {
	return &sharing{systems: make(map[string]*System), life: life{out: out}, owners: make(map[uuid.UUID]string)}
}

// Shared gives a test a view of a system that all tests with these options share. It is
// started for the first of them and runs to the end of the binary; then it is audited
// once, and what is broken fails the binary, under the name of the test that it belongs to.
//
// A view has clients of its own: their keys, and so the idempotency keys, jobs and
// endpoints. A test uses its own campaigns and, where a list or a wallet is of a user,
// users of its own ([System.User]). It may run further apis, with settings of their own,
// that end with it. A test that stops processes, counts whole tables, runs sweeps or reads
// the metrics of a whole process starts a system of its own ([Start]).
func Shared(t *testing.T, o Options) *System {
	t.Helper()
	return ofBinary.view(t, o)
}

func (p *sharing) view(t *testing.T, o Options) *System {
	t.Helper()
	if o.Binaries || o.Private || o.Sandbox != nil || o.Beacon > 0 {
		t.Fatal("a shared system runs inside the tests, with nothing beside it")
	}
	base := p.system(t, o)
	p.mu.Lock()
	p.views++
	n := p.views
	p.mu.Unlock()
	s := &System{T: t, life: t, Settings: base.Settings, DB: base.DB, Redis: base.Redis, URLs: slices.Clone(base.URLs), env: base.env,
		metrics: maps.Clone(base.metrics), shared: base, sharing: p, suffix: fmt.Sprintf("-%d", n)}
	s.name = nameOf(t) + s.suffix
	t.Cleanup(s.leave)
	s.Operator, s.App = s.newKey(key.Operator, "ops"), s.NewKey("shop")
	return s
}

// system returns the system with some options, and starts it for the first test that asks.
func (p *sharing) system(t *testing.T, o Options) *System {
	t.Helper()
	p.starting.Lock()
	defer p.starting.Unlock()
	key := fmt.Sprintf("%+v", o)
	if p.systems[key] == nil {
		base := &System{T: t, life: &p.life, sharing: p}
		base.start(o)
		p.systems[key] = base
	}
	return p.systems[key]
}

// end stops the systems and audits them. It tells whether all was well.
func (p *sharing) end() bool {
	for _, base := range p.systems {
		base.stop()
		base.check()
	}
	p.life.end()
	return !p.life.Failed()
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
			if s.isOf(line) {
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

// isOf tells whether a line of a log is about a test: a request, or something that it has made.
func (s *System) isOf(line []byte) bool {
	if Contains(line, s.name+":") {
		return true
	}
	s.sharing.mu.Lock()
	defer s.sharing.mu.Unlock()
	return slices.ContainsFunc(idsIn(string(line)), func(id uuid.UUID) bool { return s.sharing.owners[id] == s.name })
}

// check audits a shared system that has ended, and says whose test has broken it.
func (s *System) check() {
	violations, err := upkeep.Check(context.Background(), s.DB, 20)
	if err != nil {
		s.life.Error(err)
	}
	for _, v := range violations {
		s.life.Errorf("broken: %s: %s (%s)", v.Invariant, v.Subject, s.sharing.testOf(s, v.Subject))
	}
	if n := s.Deadlocks(); n != 0 {
		s.life.Errorf("%d deadlocks", n)
	}
	s.checkContract(hosts(s.URLs)...)
}

var anID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func idsIn(text string) (ids []uuid.UUID) {
	for _, id := range anID.FindAllString(text, -1) {
		ids = append(ids, uuid.MustParse(id))
	}
	return ids
}

// own notes that what has these ids belongs to the view's test, unless it has an owner.
func (s *System) own(ids ...uuid.UUID) {
	s.sharing.mu.Lock()
	defer s.sharing.mu.Unlock()
	for _, id := range ids {
		if s.sharing.owners[id] == "" {
			s.sharing.owners[id] = s.name
		}
	}
}

// note remembers what a test has made, or asked for by its path.
func (s *System) note(request *http.Request, response *http.Response, body []byte) {
	if s.sharing == nil || response.StatusCode >= 300 {
		return
	}
	s.own(idsIn(request.URL.Path + " " + response.Header.Get("Location"))...)
	if request.Method == http.MethodPost {
		s.own(idsIn(string(body))...)
	}
}

// testOf names the test that something belongs to, from the ids that a violation has in it.
func (p *sharing) testOf(s *System, subject string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range idsIn(subject) {
		if p.owners[id] != "" {
			return p.owners[id]
		}
		var campaign uuid.UUID
		err := s.DB.QueryRow(context.Background(), `
			SELECT campaign_id FROM jobs WHERE id = $1 AND campaign_id IS NOT NULL UNION ALL SELECT campaign_id FROM purchases WHERE id = $1
			UNION ALL SELECT campaign_id FROM holds WHERE id = $1 UNION ALL SELECT campaign_id FROM refunds WHERE id = $1 LIMIT 1`, id).Scan(&campaign)
		if err == nil && p.owners[campaign] != "" {
			return p.owners[campaign]
		}
	}
	return "of no test that is known"
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
	out io.Writer

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func (l *life) Name() string             { return "all tests" }
func (l *life) Context() context.Context { return context.Background() }
func (l *life) Output() io.Writer        { return l.out }
func (l *life) Helper()                  {}
func (l *life) Log(...any)               {}
func (l *life) Logf(string, ...any)      {}

// Error fails the binary.
func (l *life) Error(args ...any) {
	l.mu.Lock()
	l.failed = true
	l.mu.Unlock()
	_, _ = fmt.Fprintln(l.out, args...)
}

func (l *life) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

// Fatal fails the test that a shared system is started for, as nothing is as it should be.
func (l *life) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (l *life) Fatalf(format string, args ...any) { l.Fatal(fmt.Sprintf(format, args...)) }

// TempDir makes a folder that is there to the end of the binary.
func (l *life) TempDir() string {
	dir, err := os.MkdirTemp("", "triprize-tests-*")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (l *life) Failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

func (l *life) Cleanup(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, do)
}

func (l *life) end() {
	for _, do := range slices.Backward(l.cleanups) {
		do()
	}
	l.cleanups = nil
}
