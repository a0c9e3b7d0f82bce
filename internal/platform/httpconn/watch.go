package httpconn

import (
	"sync"
	"time"
)

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
