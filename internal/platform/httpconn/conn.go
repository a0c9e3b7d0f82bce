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

// minRate is how many bytes per second a client must send or read while we wait for it.
const minRate = 2 << 10

const (
	// peerTimeout is how long a client's machine may not respond before the connection is closed.
	peerTimeout = 30 * time.Second
	// sendBuffer bounds what the system buffers of an unread answer.
	sendBuffer = 128 << 10
	// lingerTimeout and lingerBytes bound what is read after a request was answered before its end. An
	// immediate close would reset the connection, and the client might not see the answer.
	lingerTimeout = time.Second
	lingerBytes   = 64 << 10
)

// Conn is a connection with the limits of its Listener. Deadlines that the server sets are ignored.
type Conn struct {
	net.Conn
	listener *Listener
	address  netip.Addr
	unread   func(net.Conn) int // written bytes that the client's system has not acknowledged
	closed   atomic.Bool

	head          scanner
	buffered      []byte      // received but not yet read: part of later requests
	answered      bool        // a request was answered
	answeredEarly atomic.Bool // a request was answered before its end: no other follows
	refused       atomic.Bool // a rejection was sent: the server's writes fail
	headStart     time.Time   // when the current head began
	receive       slack
	send          slack
	bodyDeadline  time.Time // of the current body; zero: only its rate is bounded

	mu       sync.Mutex
	watching chan struct{} // closed when the watch has ended; nil: none
	stopping bool
}

func newConn(socket net.Conn, l *Listener, address netip.Addr) *Conn {
	return &Conn{Conn: socket, listener: l, address: address, unread: unread, head: scanner{limit: l.options.MaxHead}, send: slack{limit: l.options.WriteTimeout, left: l.options.WriteTimeout}}
}

// SetDeadline implements net.Conn; it does nothing.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn; it does nothing.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn; it does nothing.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// Read implements net.Conn. It returns bytes of at most one request. It returns io.EOF also if the connection
// must not be used further.
func (c *Conn) Read(p []byte) (int, error) {
	c.endWatch()
	if c.answeredEarly.Load() || c.refused.Load() || len(p) == 0 {
		return 0, io.EOF
	}
	if c.head.ended() {
		c.head.reset()
	}
	n, err := c.receiveNext(p)
	if n > 0 {
		if c.head.fresh() {
			c.headStart, c.receive = time.Now(), slack{limit: c.listener.options.ReadTimeout, left: c.listener.options.ReadTimeout}
			c.bodyDeadline = time.Time{}
		}
		taken, reason := c.head.scan(p[:n])
		if taken < n {
			c.buffered = append(append(make([]byte, 0, n-taken+len(c.buffered)), p[taken:n]...), c.buffered...)
		}
		if reason != fine {
			c.refuse(reason)
			return 0, io.EOF
		}
		return taken, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if !c.head.fresh() {
			c.listener.cut.WithLabelValues("slow-sender").Inc()
			c.refuse(TooSlow)
		}
		return 0, io.EOF
	}
	return 0, err
}

// Length returns the length of the current body.
func (c *Conn) Length() int { return c.head.length }

// HasAll reports whether the current request has arrived completely.
func (c *Conn) HasAll() bool { return c.head.ended() }

// SetBodyDeadline sets when the rest of the current body must have arrived. The reader of the body calls it.
func (c *Conn) SetBodyDeadline(at time.Time) { c.bodyDeadline = at }

// receiveNext returns buffered bytes, or waits for more.
func (c *Conn) receiveNext(p []byte) (n int, err error) {
	if len(c.buffered) > 0 {
		n = copy(p, c.buffered)
		if c.buffered = c.buffered[n:]; len(c.buffered) == 0 {
			c.buffered = nil
		}
		return n, nil
	}
	options := &c.listener.options
	now := time.Now()
	switch {
	case c.head.inBody():
		by := now.Add(c.receive.left)
		if !c.bodyDeadline.IsZero() && c.bodyDeadline.Before(by) {
			by = c.bodyDeadline
		}
		_ = c.Conn.SetReadDeadline(by)
		n, err = c.Conn.Read(p)
		c.receive.use(time.Since(now), n)
		if n > 0 && c.receive.left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		return n, err
	case !c.head.fresh():
		_ = c.Conn.SetReadDeadline(c.headStart.Add(options.ReadTimeout))
	case c.answered:
		_ = c.Conn.SetReadDeadline(now.Add(options.IdleTimeout))
	default:
		_ = c.Conn.SetReadDeadline(now.Add(options.ReadTimeout))
	}
	return c.Conn.Read(p)
}

// refuse answers a request that violates a rule. Nothing else is read or sent.
func (c *Conn) refuse(reason Reason) {
	c.refused.Store(true)
	if reason != TooSlow {
		c.listener.cut.WithLabelValues("bad-request").Inc()
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(lingerTimeout))
	_, _ = c.Conn.Write(c.listener.options.Refuse(reason)) // the client may not read it
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

// linger lets a client that is still sending its request read the answer.
func (c *Conn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || !c.answeredEarly.Load() && !c.refused.Load() || half.CloseWrite() != nil {
		return
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
}

// Abort resets the connection, so that the client does not take a partial answer for a complete one.
func (c *Conn) Abort() {
	if socket, ok := c.Conn.(*net.TCPConn); ok {
		_ = socket.SetLinger(0)
	}
	c.refused.Store(true)
	_, _ = c.Conn.Close(), c.Close() // without linger
}

// maxBuffered bounds what a client may send while its request waits.
const maxBuffered = 16 << 10

// Watch calls gone once if the client closes the connection, its machine is lost, or it sends more than
// maxBuffered behind a request that waits. Call stop before the next read; Read does so too.
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
		c.buffered = append(c.buffered, buffer[:n]...)
		if err == nil && len(c.buffered) <= maxBuffered {
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
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // in the past: the read returns
	}
	c.mu.Unlock()
	if ended != nil {
		<-ended
		c.mu.Lock()
		c.watching = nil
		c.mu.Unlock()
	}
}

// slack is how long a client may still be slower than minRate.
type slack struct{ limit, left time.Duration }

// use subtracts the time waited for n bytes and adds what they take at minRate.
func (a *slack) use(waited time.Duration, n int) {
	a.left = min(a.limit, a.left-waited+time.Duration(n)*time.Second/minRate)
}

// checksPerLimit is how often Write measures what the client has read within the write timeout.
const checksPerLimit = 4

// promptWrite is how fast a write must be to restore the full slack.
const promptWrite = 100 * time.Millisecond

var interim = []byte("HTTP/1.1 1") // such as 100 Continue: the request continues

// Write implements net.Conn. It fails if the client reads too slowly.
func (c *Conn) Write(p []byte) (written int, err error) {
	if c.refused.Load() {
		return 0, net.ErrClosed
	}
	c.answered = true
	if !c.head.ended() && !bytes.HasPrefix(p, interim) {
		c.answeredEarly.Store(true)
	}
	held := -1 // unread bytes; -1: unknown
	for {
		began := time.Now()
		_ = c.Conn.SetWriteDeadline(began.Add(min(c.send.limit/checksPerLimit, max(c.send.left, time.Millisecond))))
		n, err := c.Conn.Write(p[written:])
		written += n
		waited := time.Since(began)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			if c.send.use(waited, n); waited < promptWrite {
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
			c.listener.cut.WithLabelValues("slow-reader").Inc()
			c.Abort()
			return written, err
		}
	}
}
