package httpconn

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bound is how long a client may be slow in these tests. Their time is simulated, so
// they take none of it.
const bound = 10 * time.Second

// simulate runs a test in simulated time, with a connection that has no buffer.
func simulate(t *testing.T, test func(t *testing.T, client net.Conn, server *Conn)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newListener(nil, Options{MaxHead: 4096, ReadTimeout: bound, WriteTimeout: bound, IdleTimeout: never, Refuse: func(Reason) []byte { return nil }}, prometheus.NewRegistry())
		client, socket := net.Pipe()
		server := newConn(socket, l, netip.Addr{})
		test(t, client, server)
		_, _ = client.Close(), server.Close()
		time.Sleep(bound) // for what the test has left in the background
	})
}

// request lets the server read a request.
func request(t *testing.T, client net.Conn, server *Conn) {
	t.Helper()
	go func() { _, _ = io.WriteString(client, "GET / HTTP/1.1\r\n\r\n") }()
	if _, err := server.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
}

func TestABodyMayTakeAsLongAsItNeedsIfItComesFastEnough(t *testing.T) {
	for name, c := range map[string]struct {
		perSecond int
		cutAfter  time.Duration // 0: never
	}{"at the pace": {minRate, 0}, "at half the pace": {minRate / 2, 2 * bound}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, client net.Conn, server *Conn) {
				go func() {
					_, err := io.WriteString(client, "POST / HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n")
					for piece := make([]byte, c.perSecond); err == nil; _, err = client.Write(piece) {
						time.Sleep(time.Second)
					}
				}()
				began, buffer := time.Now(), make([]byte, 4096)
				for time.Since(began) < 20*bound {
					if _, err := server.Read(buffer); err != nil {
						break
					}
				}
				lasted := time.Since(began)
				if c.cutAfter == 0 && lasted < 20*bound || c.cutAfter > 0 && (lasted < c.cutAfter-2*time.Second || lasted > c.cutAfter+2*time.Second) {
					t.Errorf("it was cut after %s", lasted)
				}
			})
		})
	}
}

func TestAnAnswerMayTakeAsLongAsItNeedsIfItIsReadFastEnough(t *testing.T) {
	for name, c := range map[string]struct {
		perSecond int
		isCut     bool
	}{"above the pace": {minRate + 100, false}, "at half the pace": {minRate / 2, true}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, client net.Conn, server *Conn) {
				request(t, client, server)
				go func() {
					buffer := make([]byte, c.perSecond)
					for err := error(nil); err == nil; _, err = io.ReadFull(client, buffer) {
						time.Sleep(time.Second)
					}
				}()
				began := time.Now()
				n, err := server.Write(make([]byte, 200*(minRate+100)))
				if c.isCut != (err != nil) || time.Since(began) < bound {
					t.Errorf("after %s: %d bytes, %v", time.Since(began), n, err)
				}
				if cut := counted(server.listener.metrics.cut.WithLabelValues("slow-reader")); (cut == 1) != c.isCut {
					t.Errorf("%v were cut", cut)
				}
			})
		})
	}
}

// full is a connection whose system takes nothing more.
type full struct{ net.Conn }

func (f full) Write([]byte) (int, error) {
	time.Sleep(bound / checksPerLimit)
	return 0, os.ErrDeadlineExceeded
}

// What a client reads from its system's buffer, and from ours, makes no room for more
// for a long time.
func TestWhatTheSystemKeepsMakesNobodySlow(t *testing.T) {
	simulate(t, func(t *testing.T, client net.Conn, server *Conn) {
		request(t, client, server)
		server.Conn = full{server.Conn}
		began, reading := time.Now(), 10*bound
		server.unread = func(net.Conn) int { return 1<<20 - int(min(time.Since(began), reading).Seconds()*1.5*minRate) }
		if _, err := server.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if lasted := time.Since(began); lasted < reading+bound || lasted > reading+bound+bound/checksPerLimit {
			t.Errorf("it was cut after %s, and read for %s", lasted, reading)
		}
	})
}

func TestSilenceBetweenAnswersIsNotSlow(t *testing.T) {
	simulate(t, func(t *testing.T, client net.Conn, server *Conn) {
		request(t, client, server)
		go func() { _, _ = io.Copy(io.Discard, client) }()
		for range 4 { // as a stream with few events
			send(t, server, "x")
			time.Sleep(2 * bound)
		}
		request(t, client, server)
	})
}
