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

func TestABodyOrAnAnswerMayTakeAsLongAsItNeedsIfItIsFastEnough(t *testing.T) {
	const enough = 20 * bound
	for name, row := range map[string]struct {
		perSecond int
		body      bool
		cutAfter  time.Duration // 0: never
	}{
		"a body at the pace":         {minRate, true, 0},
		"a body at half the pace":    {minRate / 2, true, 2 * bound},
		"an answer above the pace":   {minRate + 100, false, 0},
		"an answer at half the pace": {minRate / 2, false, 2 * bound},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, client net.Conn, server *Conn) {
				piece := make([]byte, row.perSecond)
				began := time.Now()
				var lasted time.Duration
				if row.body {
					go func() {
						_, err := io.WriteString(client, "POST / HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n")
						for ; err == nil; _, err = client.Write(piece) {
							time.Sleep(time.Second)
						}
					}()
					for buffer, err := make([]byte, 4096), error(nil); err == nil && lasted < enough; lasted = time.Since(began) {
						_, err = server.Read(buffer)
					}
				} else {
					request(t, client, server)
					go func() {
						for err := error(nil); err == nil; _, err = io.ReadFull(client, piece) {
							time.Sleep(time.Second)
						}
					}()
					_, err := server.Write(make([]byte, int(enough/time.Second)*(minRate+100)))
					lasted = time.Since(began)
					if cut := counted(server.listener.metrics.cut.WithLabelValues("slow-reader")); (err != nil) != (row.cutAfter > 0) || (cut == 1) != (row.cutAfter > 0) {
						t.Errorf("%v, %v were cut", err, cut)
					}
				}
				if row.cutAfter == 0 && lasted < enough-2*time.Second || row.cutAfter > 0 && (lasted < bound || lasted > row.cutAfter+2*time.Second) {
					t.Errorf("it lasted %s", lasted)
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

func TestWhatIsMovedMakesUpForTheTimeThatItTook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waited time.Duration
		moved  int
		left   time.Duration
	}{
		"nothing":           {3 * time.Second, 0, 5 * time.Second},
		"too little":        {3 * time.Second, minRate, 6 * time.Second},
		"just enough":       {3 * time.Second, 3 * minRate, 8 * time.Second},
		"more":              {time.Second, 2 * minRate, 9 * time.Second},
		"no more than all":  {time.Second, 100 * minRate, 10 * time.Second},
		"nothing, too long": {9 * time.Second, 0, -time.Second},
	} {
		a := slack{limit: 10 * time.Second, left: 8 * time.Second}
		if a.use(c.waited, c.moved); a.left != c.left {
			t.Errorf("%s: %s are left, want %s", name, a.left, c.left)
		}
	}
}
