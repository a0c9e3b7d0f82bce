package telemetry

import (
	"io"
	"sync"
	"time"
)

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
