package telemetry

import (
	"io"
	"log/slog"
	"sync"
)

// lines writes each line at once, but those of Together with one write.
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
	if l.holders > 0 {
		l.held = append(l.held, line...)
		return len(line), nil
	}
	return l.out.Write(line)
}

// Together writes the lines of log with one write, after its end. It must only log.
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
		_, _ = l.out.Write(l.held) // like any other line that cannot be written
		l.held = l.held[:0]
	}
}
