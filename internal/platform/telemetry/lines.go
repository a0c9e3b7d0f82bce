package telemetry

import (
	"io"
	"log/slog"
	"sync"
)

// mostHeld is how many bytes wait for the end of Together, which may never come while many log so.
const mostHeld = 64 << 10

// lines writes each line at once, but those of Together with one write, or a few.
type lines struct {
	mu      sync.Mutex
	out     io.Writer
	holders int
	held    []byte
}

// Write implements io.Writer.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders == 0 {
		return l.out.Write(line)
	}
	if l.held = append(l.held, line...); len(l.held) >= mostHeld {
		l.flush()
	}
	return len(line), nil
}

func (l *lines) flush() {
	_, _ = l.out.Write(l.held) // like any other line that cannot be written
	l.held = l.held[:0]
}

// Together writes the lines of log with one write, after its end; with some more when they are long, or when
// others never stop to do the same. It must only log.
func Together(logger *slog.Logger, log func()) {
	f, ok := logger.Handler().(*fold)
	if !ok {
		log()
		return
	}
	l := f.folds.lines
	l.hold(1)
	defer l.hold(-1)
	log()
}

func (l *lines) hold(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders += more; l.holders == 0 && len(l.held) > 0 {
		l.flush()
	}
}
