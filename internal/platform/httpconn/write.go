package httpconn

import (
	"bytes"
	"errors"
	"net"
	"os"
	"time"
)

// allowance is how long a client may still be slower than Pace.
type allowance struct{ limit, left time.Duration }

// use takes the time that was waited for n bytes, and gives what these are worth.
func (a *allowance) use(waited time.Duration, n int) {
	a.left = min(a.limit, a.left-waited+time.Duration(n)*time.Second/pace)
}

// checks is how often, within the longest time that a client may be slow, it is
// looked at how much it has read.
const checks = 4

// atOnce is how soon a write must be done if the client is not to count as slow.
const atOnce = 100 * time.Millisecond

var interim = []byte("HTTP/1.1 1") // an answer such as 100 Continue: the request goes on

// Write implements net.Conn. It fails when the client reads slower than it may.
func (c *Conn) Write(p []byte) (written int, err error) {
	if c.refused.Load() {
		return 0, net.ErrClosed
	}
	c.answered = true
	if !c.head.ended() && !bytes.HasPrefix(p, interim) {
		c.early.Store(true)
	}
	held := -1 // bytes that the client has not read; not known yet
	for {
		began := time.Now()
		_ = c.Conn.SetWriteDeadline(began.Add(min(c.send.limit/checks, max(c.send.left, time.Millisecond))))
		n, err := c.Conn.Write(p[written:])
		written += n
		waited := time.Since(began)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			if c.send.use(waited, n); waited < atOnce {
				c.send.left = c.send.limit
			}
			return written, err
		}
		before := held
		held = c.unread(c.Conn)
		moved := n
		if before >= 0 {
			moved += before - held
		}
		if c.send.use(waited, moved); c.send.left <= 0 {
			c.listener.metrics.cut.WithLabelValues("slow-reader").Inc()
			c.Abort()
			return written, err
		}
	}
}
