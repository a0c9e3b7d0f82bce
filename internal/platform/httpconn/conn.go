package httpconn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// pace is how many bytes a second a client must send or read, of what it is waited
// for.
const pace = 2 << 10

const (
	// deadAfter is how long a client's machine may say nothing at all before it
	// counts as gone.
	deadAfter = 30 * time.Second
	// sendBuffer bounds what the system keeps of an answer that is not read.
	sendBuffer = 128 << 10
	// lingerTimeout and lingerBytes bound what is still read from a client whose
	// request was answered before its end. Closing at once would reset the
	// connection, and the client might not see the answer.
	lingerTimeout = time.Second
	lingerBytes   = 64 << 10
)

// Conn is a connection that keeps to the bounds of its Listener. Deadlines that the
// server sets have no effect: the bounds say how long a connection may take.
type Conn struct {
	net.Conn
	listener *Listener
	address  netip.Addr
	unread   func(net.Conn) int // bytes that were written and that the client's system has not acknowledged
	closed   atomic.Bool

	head     scanner
	ahead    []byte      // received and not yet delivered: it belongs to later requests
	answered bool        // a request was answered: what comes next is a further one
	early    atomic.Bool // a request was answered before its end: no other one follows
	refused  atomic.Bool // a refusal was sent: the server has nothing to add
	begun    time.Time   // when the head in hand began
	receive  allowance
	send     allowance
	bodyBy   time.Time // the body in hand must have arrived; zero: its pace is enough

	mu       sync.Mutex
	watching chan struct{} // closed when the watch has ended; nil without one
	stopping bool
}

func newConn(socket net.Conn, l *Listener, address netip.Addr) *Conn {
	return &Conn{Conn: socket, listener: l, address: address, unread: unread, head: scanner{limit: l.options.MaxHead}, send: allowance{limit: l.options.WriteTimeout, left: l.options.WriteTimeout}}
}

// SetDeadline implements net.Conn; it does nothing.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn; it does nothing.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn; it does nothing.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// Read implements net.Conn. It returns bytes of one request at most. It returns
// io.EOF also when the connection must not be used any further.
func (c *Conn) Read(p []byte) (int, error) {
	c.endWatch()
	if c.early.Load() || c.refused.Load() || len(p) == 0 {
		return 0, io.EOF
	}
	if c.head.ended() {
		c.head.reset()
	}
	n, err := c.next(p)
	if n > 0 {
		if c.head.fresh() {
			c.begun, c.receive = time.Now(), allowance{limit: c.listener.options.ReadTimeout, left: c.listener.options.ReadTimeout}
			c.bodyBy = time.Time{}
		}
		taken, reason := c.head.scan(p[:n])
		if taken < n {
			c.ahead = append(append(make([]byte, 0, n-taken+len(c.ahead)), p[taken:n]...), c.ahead...)
		}
		if reason != fine {
			c.refuse(reason)
			return 0, io.EOF
		}
		return taken, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if !c.head.fresh() {
			c.listener.metrics.cut.WithLabelValues("slow-sender").Inc()
			c.refuse(TooSlow)
		}
		return 0, io.EOF
	}
	return 0, err
}

// Length returns the length of the body in hand.
func (c *Conn) Length() int { return c.head.length }

// HasAll tells whether the request in hand has arrived to its end.
func (c *Conn) HasAll() bool { return c.head.ended() }

// EndBodyBy has the rest of the body in hand arrive by a time, however fast it comes. The reader
// of the body calls it.
func (c *Conn) EndBodyBy(at time.Time) { c.bodyBy = at }

// next returns what was received before, or waits for more.
func (c *Conn) next(p []byte) (n int, err error) {
	if len(c.ahead) > 0 {
		n = copy(p, c.ahead)
		if c.ahead = c.ahead[n:]; len(c.ahead) == 0 {
			c.ahead = nil
		}
		return n, nil
	}
	options := &c.listener.options
	now := time.Now()
	switch {
	case c.head.inBody():
		by := now.Add(c.receive.left)
		if !c.bodyBy.IsZero() && c.bodyBy.Before(by) {
			by = c.bodyBy
		}
		_ = c.Conn.SetReadDeadline(by)
		n, err = c.Conn.Read(p)
		c.receive.use(time.Since(now), n)
		if n > 0 && c.receive.left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		return n, err
	case !c.head.fresh():
		_ = c.Conn.SetReadDeadline(c.begun.Add(options.ReadTimeout))
	case c.answered:
		_ = c.Conn.SetReadDeadline(now.Add(options.IdleTimeout))
	default:
		_ = c.Conn.SetReadDeadline(now.Add(options.ReadTimeout))
	}
	return c.Conn.Read(p)
}

// refuse answers a request that breaks a rule. Nothing else is read or sent.
func (c *Conn) refuse(reason Reason) {
	c.refused.Store(true)
	if reason != TooSlow {
		c.listener.metrics.cut.WithLabelValues("bad-request").Inc()
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(lingerTimeout))
	_, _ = c.Conn.Write(c.listener.options.Refuse(reason)) // a client that does not read it has lost nothing
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	c.linger()
	err := c.Conn.Close()
	c.listener.release(c.address)
	return err
}

// linger lets the client see the answer to a request of which it still sends the rest.
func (c *Conn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || !c.early.Load() && !c.refused.Load() || half.CloseWrite() != nil {
		return
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
}

// Abort closes the connection so that nobody takes the part of an answer that was sent for
// the whole.
func (c *Conn) Abort() {
	if socket, ok := c.Conn.(*net.TCPConn); ok {
		_ = socket.SetLinger(0)
	}
	c.refused.Store(true)
	_, _ = c.Conn.Close(), c.Close() // there is nothing to linger for
}

// aheadLimit bounds what a client may send while its request waits.
const aheadLimit = 16 << 10

// Watch calls gone once when the client closes the connection, or its machine is
// lost, or it sends more than anybody would behind a request that waits. Call stop
// before the connection is read again; a Read does so too.
func (c *Conn) Watch(gone func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watching != nil || c.closed.Load() {
		return func() {}
	}
	ended := make(chan struct{})
	c.watching, c.stopping = ended, false
	_ = c.Conn.SetReadDeadline(time.Time{})
	go c.watch(ended, gone)
	return sync.OnceFunc(c.endWatch)
}

func (c *Conn) watch(ended chan<- struct{}, gone func()) {
	defer close(ended)
	var buffer [512]byte
	for {
		n, err := c.Conn.Read(buffer[:])
		c.ahead = append(c.ahead, buffer[:n]...)
		if err == nil && len(c.ahead) <= aheadLimit {
			continue
		}
		c.mu.Lock()
		stopping := c.stopping
		c.mu.Unlock()
		if !stopping {
			gone()
		}
		return
	}
}

// endWatch ends the watch, if there is one.
func (c *Conn) endWatch() {
	c.mu.Lock()
	ended := c.watching
	c.stopping = true
	if ended != nil {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // it is over: the read returns
	}
	c.mu.Unlock()
	if ended != nil {
		<-ended
		c.mu.Lock()
		c.watching = nil
		c.mu.Unlock()
	}
}

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
