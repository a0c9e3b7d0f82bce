package telemetry

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"triprize/internal/platform/config"
)

// NewLogger returns a logger that marks every line with the process kind. It bounds the lines of
// one message; end with Flush.
func NewLogger(settings config.Log, process string, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(settings.Level)) // config has checked it
	opts := &slog.HandlerOptions{Level: level}
	out := &lines{out: w}
	var handler slog.Handler = slog.NewJSONHandler(out, opts)
	if settings.Format == "text" {
		handler = slog.NewTextHandler(out, opts)
	}
	return slog.New(sampler{handler, &counts{}, out}).With("process", process)
}

// Took says in a log line how long something took, in milliseconds.
func Took(d time.Duration) slog.Attr {
	return slog.Float64("took_ms", float64(d.Microseconds())/1000)
}

const (
	samplePeriod = time.Minute
	// mostOfMessage is how many lines of a message are written in a period.
	mostOfMessage = 100
	// mostKinds bounds the kinds of lines that are known at a time; others count by their message.
	mostKinds = 512
)

// kindKey is the key of a kind in a context.
type kindKey struct{}

// Sampled returns the context of lines below WARN that are sampled like those above: of lines with a
// kind, one is written in a minute; of those with the kind "", as many as of any message.
func Sampled(kind string) context.Context {
	return context.WithValue(context.Background(), kindKey{}, kind)
}

// sampler is a handler that bounds the lines of one message, since an outage has one for each
// request: of those of WARN and above, and of Sampled ones. The first ones of a minute are written.
// The first one of the next minute says how many were left out. Lines of WARN and above are written at once.
type sampler struct {
	slog.Handler
	counts *counts
	lines  *lines
}

// counts are the lines of each kind in a period, and in the one before.
type counts struct {
	mu          sync.Mutex
	since       time.Time
	now, before map[string]int
}

// Handle implements slog.Handler.
func (s sampler) Handle(ctx context.Context, line slog.Record) error {
	if kind, isSampled := ctx.Value(kindKey{}).(string); isSampled || line.Level >= slog.LevelWarn {
		isWritten, left := s.counts.add(line.Level.String()+line.Message, kind)
		if !isWritten {
			return nil
		}
		if left > 0 {
			line = line.Clone()
			line.AddAttrs(slog.Int("left_out", left))
		}
	}
	err := s.Handler.Handle(ctx, line)
	if line.Level >= slog.LevelWarn {
		s.lines.flush()
	}
	return err
}

// add counts a line. left is how many of its kind were left out in the period before.
func (c *counts) add(message, kind string) (isWritten bool, left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.since) >= samplePeriod {
		c.since, c.now, c.before = time.Now(), make(map[string]int), c.now
	}
	key, most := message, mostOfMessage
	if kind != "" && (c.now[message+kind] > 0 || len(c.now) < mostKinds) {
		key, most = message+kind, 1
	}
	left = max(c.before[key]-most, 0)
	delete(c.before, key)
	c.now[key]++
	return c.now[key] <= most, left
}

// WithAttrs implements slog.Handler.
func (s sampler) WithAttrs(all []slog.Attr) slog.Handler {
	return sampler{s.Handler.WithAttrs(all), s.counts, s.lines}
}

// WithGroup implements slog.Handler.
func (s sampler) WithGroup(name string) slog.Handler {
	return sampler{s.Handler.WithGroup(name), s.counts, s.lines}
}

// Flush writes the lines that wait. Call it before the process ends.
func Flush(logger *slog.Logger) {
	if s, ok := logger.Handler().(sampler); ok {
		s.lines.flush()
	}
}

const (
	// linesWait is how long a line below WARN waits for others to be written with it.
	linesWait = 20 * time.Millisecond
	// mostWaiting is how many bytes wait at most.
	mostWaiting = 64 << 10
)

// lines writes lines together: one by one, each would hold all that log while it is written. Nothing
// runs while nothing waits.
type lines struct {
	mu      sync.Mutex // of what waits
	waiting []byte
	timer   *time.Timer // nil while nothing waits

	writing sync.Mutex // held during a write, so that lines stay in their order
	out     io.Writer
	spare   []byte
}

// Write implements io.Writer.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	l.waiting = append(l.waiting, line...)
	full := len(l.waiting) >= mostWaiting
	if l.timer == nil {
		l.timer = time.AfterFunc(linesWait, l.flush)
	}
	l.mu.Unlock()
	if full {
		l.flush()
	}
	return len(line), nil
}

// flush writes what waits.
func (l *lines) flush() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	now := l.waiting
	l.waiting = l.spare[:0]
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.mu.Unlock()
	if len(now) > 0 {
		_, _ = l.out.Write(now) // as with any other line that cannot be written, nobody could be told
	}
	l.spare = now
}
