package postgres_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// host is a host in front of Postgres. When it has vanished it passes nothing on, and nobody connects to it.
type host struct {
	net.Listener
	alive sync.RWMutex // locked once it has vanished
}

func newHost(t *testing.T, server string) *host {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	servers.NoError(t, err)
	h := &host{Listener: listener}
	t.Cleanup(func() { _ = listener.Close() })
	pass := func(from, to net.Conn) {
		defer func() { _ = to.Close() }()
		for buffer := make([]byte, 4096); ; {
			n, err := from.Read(buffer)
			h.alive.RLock()
			_, failed := to.Write(buffer[:n])
			h.alive.RUnlock()
			if err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if back, err := net.Dial("tcp", server); err == nil {
				go pass(client, back)
				go pass(back, client)
			}
		}
	}()
	return h
}

func (h *host) vanish(t *testing.T) {
	h.alive.Lock()
	t.Cleanup(h.alive.Unlock)
	_ = h.Close()
}

// Without a connection to spare: pgx alone would close the lost one for 15 s.
func TestAPoolWhoseServerHasVanishedSoonHasAConnectionToAnother(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t).Postgres
	u, err := url.Parse(settings.URL)
	servers.NoError(t, err)
	first := newHost(t, u.Host)
	u.Host = first.Addr().String() + "," + u.Host
	settings.URL, settings.MaxConnections = u.String(), 1
	db, err := postgres.Open(t.Context(), settings, "triprize-vanish")
	servers.NoError(t, err)
	t.Cleanup(db.Close)
	servers.NoError(t, db.Ping(t.Context()))
	first.vanish(t)
	bounded, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := db.Ping(bounded); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := db.Ping(soon); err != nil {
		t.Error(err)
	}
}
