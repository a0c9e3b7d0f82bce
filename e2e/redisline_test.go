//go:build soak

package e2e

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// redisLine stands between a process and Redis: it can be slow, or go dead, when
// connections stay open, are taken, and nothing comes through.
type redisLine struct {
	url    string // of Redis, through the line
	server string

	mu    sync.Mutex
	delay time.Duration // of every answer
	dead  bool
	open  []net.Conn
}

// newRedisLine returns a line to the Redis at an URL. It ends with the test.
func newRedisLine(t *testing.T, redis string) *redisLine {
	t.Helper()
	u, err := url.Parse(redis)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &redisLine{server: u.Host}
	u.Host = listener.Addr().String()
	l.url = u.String()
	t.Cleanup(func() { _ = listener.Close() }) // connections end with the processes, which end later
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(client)
		}
	}()
	return l
}

// set changes how the line is from now on. Connections of before end.
func (l *redisLine) set(delay time.Duration, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.dead = delay, dead
	for _, conn := range l.open {
		_ = conn.Close()
	}
	l.open = nil
}

func (l *redisLine) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	l.mu.Lock()
	delay, dead := l.delay, l.dead
	l.open = append(l.open, client, server)
	l.mu.Unlock()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	part := make([]byte, 32<<10)
	for {
		n, err := server.Read(part)
		if err != nil {
			return
		}
		if dead {
			continue
		}
		time.Sleep(delay)
		if _, err := client.Write(part[:n]); err != nil {
			return
		}
	}
}
