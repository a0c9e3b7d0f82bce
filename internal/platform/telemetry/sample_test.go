package telemetry_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"triprize/internal/platform/config"
	"triprize/internal/platform/telemetry"
)

// An outage is a few lines a minute, however many requests it meets; the first of each message is
// written at once, and what is left out is counted.
func TestLinesOfAMessageHaveABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &writes{}
		logger := telemetry.NewLogger(config.Log{Level: "info", Format: "text"}, "api", out).With("shop", "a")
		seen := 0
		expect := func(what string, lines int, with ...string) {
			t.Helper()
			time.Sleep(time.Second) // lines below WARN are written
			synctest.Wait()
			all := strings.Join(out.all(), "")
			if n := strings.Count(all[seen:], "\n"); n != lines {
				t.Errorf("%s: %d lines, want %d", what, n, lines)
			}
			for _, text := range with {
				if !strings.Contains(all[seen:], text) {
					t.Errorf("%s: nothing says %s", what, text)
				}
			}
			seen = len(all)
		}
		for n := range 12000 {
			logger.Warn("request not served", "n", n)
		}
		logger.Warn("another", "purchase", "a")
		logger.Error("another", "purchase", "b")
		expect("of WARN and above", 102, "n=0\n", "n=99", "purchase=a", "purchase=b")
		for range 300 {
			logger.Info("request")
		}
		expect("what is done", 300)
		for range 300 {
			logger.InfoContext(telemetry.Sampled(""), "request", "status", 401)
		}
		expect("what is refused", 100, "status=401")
		for range 9 {
			logger.InfoContext(telemetry.Sampled("key 1"), "read", "key", 1)
			logger.InfoContext(telemetry.Sampled("key 2"), "read", "key", 2)
		}
		expect("what is read", 2, "key=1", "key=2")
		for n := range 10000 {
			logger.InfoContext(telemetry.Sampled(strconv.Itoa(n)), "read")
		}
		expect("a flood of kinds", 606)
		time.Sleep(time.Minute)
		logger.Warn("request not served")
		logger.Warn("request not served")
		logger.InfoContext(telemetry.Sampled("key 1"), "read")
		expect("a minute later", 3, "shop=a left_out=11900", "shop=a left_out=8")
	})
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
