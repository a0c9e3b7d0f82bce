package telemetry

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"triprize/internal/platform/config"
)

// NewLogger returns a logger that adds the process kind to every line and limits the lines of each message. Call
// Flush at the end.
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

// Took is a log attribute with a duration in milliseconds.
func Took(d time.Duration) slog.Attr {
	return slog.Float64("took_ms", float64(d.Microseconds())/1000)
}

const (
	samplePeriod = time.Minute
	// maxPerMessage is how many lines of a message are written in a period.
	maxPerMessage = 100
	// maxKinds bounds the tracked kinds of lines; lines of others count by message.
	maxKinds = 512
)

// kindKey is the context key of a kind.
type kindKey struct{}

// Sampled returns a context for lines below WARN that are sampled too: of each kind one line per minute, or with
// the kind "" as many as of other messages.
func Sampled(kind string) context.Context {
	return context.WithValue(context.Background(), kindKey{}, kind)
}

// sampler is a handler that limits the lines of each message from WARN and of Sampled ones, because an outage
// logs one for each request. It writes the first lines of a minute; the first line of the next minute has the
// number of those left out. Lines from WARN are flushed at once.
type sampler struct {
	slog.Handler
	counts *counts
	lines  *lines
}

// counts are the numbers of lines of each kind in this period and in the one before.
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
	key, limit := message, maxPerMessage
	if kind != "" && (c.now[message+kind] > 0 || len(c.now) < maxKinds) {
		key, limit = message+kind, 1
	}
	left = max(c.before[key]-limit, 0)
	delete(c.before, key)
	c.now[key]++
	return c.now[key] <= limit, left
}

// WithAttrs implements slog.Handler.
func (s sampler) WithAttrs(all []slog.Attr) slog.Handler {
	return sampler{s.Handler.WithAttrs(all), s.counts, s.lines}
}

// WithGroup implements slog.Handler.
func (s sampler) WithGroup(name string) slog.Handler {
	return sampler{s.Handler.WithGroup(name), s.counts, s.lines}
}

// Flush writes the buffered lines. Call it before the process ends.
func Flush(logger *slog.Logger) {
	if s, ok := logger.Handler().(sampler); ok {
		s.lines.flush()
	}
}

const (
	// flushDelay is how long a line below WARN is buffered.
	flushDelay = 20 * time.Millisecond
	// maxBuffered is how many bytes are buffered before a flush.
	maxBuffered = 64 << 10
)

// lines buffers lines, because a write for each would block all goroutines that log.
type lines struct {
	mu       sync.Mutex // of the buffer
	buffered []byte
	timer    *time.Timer // nil while the buffer is empty

	writing sync.Mutex // held during a write, to preserve the order of lines
	out     io.Writer
	spare   []byte
}

// Write implements io.Writer.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	l.buffered = append(l.buffered, line...)
	full := len(l.buffered) >= maxBuffered
	if l.timer == nil {
		l.timer = time.AfterFunc(flushDelay, l.flush)
	}
	l.mu.Unlock()
	if full {
		l.flush()
	}
	return len(line), nil
}

// flush writes the buffered lines.
func (l *lines) flush() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	now := l.buffered
	l.buffered = l.spare[:0]
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.mu.Unlock()
	if len(now) > 0 {
		_, _ = l.out.Write(now) // a failed write cannot be logged
	}
	l.spare = now
}
