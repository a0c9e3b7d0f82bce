package telemetry_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/config"
	"triprize/internal/platform/telemetry"
	"triprize/internal/store/job"
)

// folding returns a logger and what it has written since the last look, without times.
func folding() (logger *slog.Logger, written func() []string) {
	out := &writes{}
	logger = telemetry.NewLogger(config.Log{Level: "info", Format: "text"}, "api", out)
	seen := 0
	return logger, func() (lines []string) {
		all := out.all()
		for line := range strings.Lines(strings.Join(all[seen:], "")) {
			lines = append(lines, strings.TrimSpace(line[strings.Index(line, "level="):]))
		}
		seen = len(all)
		return lines
	}
}

func expectLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.Contains(got[i], want[i])
	}
	if !ok {
		t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// An outage is a few lines a minute, however many requests it meets, and nothing is left uncounted.
func TestLinesThatSayTheSameAreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, written := folding()
		soon := func() { time.Sleep(time.Second); synctest.Wait() } // lines below WARN are written
		refused := func(n int) {
			logger.Warn("request not served", "request_id", uuid.NewString(), "path", "/v1/jobs/"+uuid.NewString(), "took_ms", n,
				"error", fmt.Errorf("could not extend file base/%d/%d: no space left", n, 2*n))
		}
		for n := range 12000 {
			refused(n)
		}
		logger.Info("request", "n", 1)
		logger.Info("request", "n", 1)
		soon()
		expectLines(t, "at once", written(), "request not served", "msg=request ", "msg=request ")
		time.Sleep(61 * time.Second)
		synctest.Wait()
		expectLines(t, "after a minute", written(), `level=WARN msg=repeated process=api line="request not served" count=11999 since=`)
		refused(7)
		expectLines(t, "then", written(), "request not served")
		time.Sleep(61 * time.Second)
		refused(8)
		expectLines(t, "a minute without repeats", written(), "request not served")
		refused(9)
		logger.InfoContext(telemetry.Foldable, "request", "status", 401)
		logger.InfoContext(telemetry.Foldable, "request", "status", 401)
		soon()
		expectLines(t, "foldable", written(), "status=401")
		for _, address := range []string{"a", "b", "a", "b"} {
			logger.InfoContext(telemetry.FoldableByAddress, "read", "address", address)
		}
		soon()
		expectLines(t, "by address", written(), "address=a", "address=b")
		telemetry.Flush(logger)
		if got := written(); len(got) != 4 || !strings.Contains(strings.Join(got, ""), "took_ms=9") {
			t.Errorf("at the end: %q", got)
		}
		telemetry.Flush(logger)
		time.Sleep(2 * time.Minute)
		expectLines(t, "once", written())
	})
}

// What an operator has to look at one by one is one line each.
func TestLinesAboutDifferentThingsAreNotFolded(t *testing.T) {
	t.Parallel()
	logger, written := folding()
	about := func(args ...any) func() { return func() { logger.Error("money was given back twice", args...) } }
	for _, log := range []func(){
		about("purchase", uuid.New(), "amount", 7), about("purchase", uuid.New(), "amount", 7), about("purchase", "a"), about("refund", "a"),
		about("error", errors.New("this")), about("error", errors.New("that")), about("kind", job.KindDraw), about("kind", job.KindRefund),
		func() { logger.With("purchase", "b").Error("money was given back twice") },
		func() { logger.Warn("money was given back twice") }, func() { logger.Warn("money was not given back") },
	} {
		log()
	}
	if got := written(); len(got) != 11 {
		t.Errorf("written:\n%s", strings.Join(got, "\n"))
	}
}

// The kinds that are known have a bound, and a flood of them is still folded.
func TestAFloodOfKindsIsFolded(t *testing.T) {
	t.Parallel()
	logger, written := folding()
	for range 10000 {
		logger.Warn("a campaign stays locked", "campaign", uuid.New())
	}
	if n := len(written()); n < 100 || n > 1000 {
		t.Errorf("%d lines", n)
	}
}

// Lines wait a moment for each other, so that those of a batch are one write; one of WARN waits for nothing, and
// takes those before it along. Nothing waits at the end.
func TestLinesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &writes{}
		logger := telemetry.NewLogger(config.Log{Level: "info", Format: "text"}, "worker", out)
		batch := func(n int) {
			for i := range n {
				logger.Info("job finalized", "n", i)
			}
		}
		expect := func(what string, lines ...int) {
			t.Helper()
			var got []int
			for _, w := range out.all() {
				got = append(got, strings.Count(w, "\n"))
			}
			if !slices.Equal(got, lines) {
				t.Errorf("%s: writes of %v lines, want %v", what, got, lines)
			}
		}
		batch(256)
		expect("at once")
		time.Sleep(time.Second)
		synctest.Wait()
		expect("a moment later", 256)
		batch(2)
		logger.Warn("trouble")
		expect("with a warning", 256, 3)
		batch(1)
		telemetry.Flush(logger)
		expect("at the end", 256, 3, 1)
		batch(5000)
		if n := len(out.all()); n < 5 || n > 20 {
			t.Errorf("many lines wait for nothing, or are %d writes", n)
		}
		telemetry.Flush(logger)
	})
}

// writes keeps what is written, one text for each write. The timers of the logger write, too.
type writes struct {
	mu    sync.Mutex
	texts []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, string(p))
	return len(p), nil
}

func (w *writes) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}
