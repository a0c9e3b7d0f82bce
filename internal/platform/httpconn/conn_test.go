package httpconn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// never is longer than any test takes.
const never = time.Hour

// open listens on loopback. Bounds that a test does not set are never reached.
func open(t *testing.T, options Options) *Listener {
	t.Helper()
	for bound, value := range map[*time.Duration]time.Duration{&options.ReadTimeout: never, &options.WriteTimeout: never, &options.IdleTimeout: never} {
		if *bound == 0 {
			*bound = value
		}
	}
	if options.MaxOpen == 0 {
		options.MaxOpen = 100
	}
	options.MaxHead = 4096
	options.Refuse = refusal
	l, err := Listen(t.Context(), "127.0.0.1:0", options, prometheus.NewRegistry())
	servers.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func refusal(reason Reason) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 4%02d no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", reason)
}

// connect returns both ends of a connection.
func connect(t *testing.T, l *Listener) (client *net.TCPConn, server *Conn) {
	t.Helper()
	dialed, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	servers.NoError(t, err)
	accepted, err := l.Accept()
	servers.NoError(t, err)
	client, server = dialed.(*net.TCPConn), accepted.(*Conn)
	servers.NoError(t, client.SetDeadline(time.Now().Add(servers.Patience)))
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

func counted(c prometheus.Counter) float64 {
	var m dto.Metric
	_ = c.Write(&m) // to memory it cannot fail
	return m.GetCounter().GetValue()
}

func send(t *testing.T, conn io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// received reads at least n bytes, by reads that could return more.
func received(t *testing.T, conn io.Reader, n int) (got string) {
	t.Helper()
	for buffer := make([]byte, 200); len(got) < n; {
		read, err := conn.Read(buffer)
		servers.NoError(t, err)
		got += string(buffer[:read])
	}
	return got
}

func TestOneReadReturnsBytesOfOneRequest(t *testing.T) {
	t.Parallel()
	client, server := connect(t, open(t, Options{}))
	first, second := "POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "GET /b HTTP/1.1\r\n\r\n"
	send(t, client, first+second+second)
	for _, want := range []string{first, second, second} {
		if got := received(t, server, len(want)); got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	}
}

func TestARefusedRequestIsAnsweredOnceAndNothingFollows(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	client, server := connect(t, l)
	send(t, client, "GET / HTTP/1.1\nHost: a\r\n\r\n"+strings.Repeat("x", 20_000))
	buffer := make([]byte, 100)
	if n, err := server.Read(buffer); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the server reads %d, %v", n, err)
	}
	if _, err := server.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err == nil {
		t.Error("the server answers too")
	}
	go func() { _ = server.Close() }() // it lingers, so that the answer is seen
	if got, err := io.ReadAll(client); err != nil || strings.Count(string(got), "HTTP/1.1") != 1 {
		t.Errorf("the client reads %q, %v", got, err)
	}
	if n := counted(l.cut.WithLabelValues("bad-request")); n != 1 {
		t.Errorf("%v were counted", n)
	}
}

func TestAnAnswerBeforeTheEndOfItsRequestIsTheLast(t *testing.T) {
	t.Parallel()
	client, server := connect(t, open(t, Options{}))
	send(t, client, "POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nGET /inner HTTP/1.1\r\n\r\n")
	buffer := make([]byte, 60)
	if _, err := server.Read(buffer[:41]); err != nil {
		t.Fatal(err)
	}
	send(t, server, "HTTP/1.1 100 Continue\r\n\r\n")
	if n, err := server.Read(buffer); n == 0 || err != nil {
		t.Errorf("after an interim answer: %d, %v", n, err)
	}
	send(t, server, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
	if n, err := server.Read(buffer); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after the answer: %q, %v", buffer[:n], err)
	}
}

func TestWhoSendsTooSlowlyIsCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, drip string }{
		"no head":         {"", ""},
		"half a head":     {"GET / HT", ""},
		"a head in drops": {"GET / HTTP/1.1\r\n", "X: y\r\n"},
		"half a body":     {"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", ""},
		"a body in drops": {"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, client net.Conn, server *Conn) {
				go func() {
					for _, err := io.WriteString(client, c.text); err == nil && c.drip != ""; _, err = io.WriteString(client, c.drip) {
						time.Sleep(bound / 20)
					}
				}()
				answer := make(chan []byte)
				go func() { all, _ := io.ReadAll(client); answer <- all }()
				if _, err := io.Copy(io.Discard, server); err != nil {
					t.Errorf("the server: %v", err)
				}
				_ = server.Close()
				if answer := <-answer; bytes.HasPrefix(answer, []byte("HTTP/1.1 402")) != (c.text != "") {
					t.Errorf("the answer is %q", answer)
				}
			})
		})
	}
}

func TestABodyThatMustHaveArrivedIsCutAndTheNextOneIsNot(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	const whole = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n"
	for _, late := range []bool{false, true} {
		client, server := connect(t, l)
		read := func(n int) (string, error) {
			buffer := make([]byte, n)
			n, err := io.ReadFull(server, buffer)
			return string(buffer[:n]), err
		}
		send(t, client, whole+"a")
		if _, err := read(len(whole) + 1); err != nil {
			t.Fatal(err)
		}
		if late {
			server.SetBodyDeadline(time.Now())
		} else {
			server.SetBodyDeadline(time.Now().Add(never))
			send(t, client, "bc")
		}
		if rest, err := read(2); (err != nil) != late {
			t.Errorf("late %t: %q, %v", late, rest, err)
		}
		if late {
			_ = server.Close()
			if answer, _ := io.ReadAll(client); !bytes.HasPrefix(answer, []byte("HTTP/1.1 402")) {
				t.Errorf("the answer is %q", answer)
			}
			continue
		}
		send(t, server, "HTTP/1.1 204 No Content\r\n\r\n")
		server.SetBodyDeadline(time.Now()) // of the body that has arrived
		send(t, client, whole+"abc")
		if next, err := read(len(whole) + 3); err != nil {
			t.Errorf("the next request: %q, %v", next, err)
		}
	}
}

func TestWhoNeverReadsIsCutAndLeavesNothing(t *testing.T) {
	t.Parallel()
	l := open(t, Options{WriteTimeout: 200 * time.Millisecond})
	client, server := connect(t, l)
	request(t, client, server)
	if n, err := server.Write(make([]byte, 64<<20)); err == nil {
		t.Errorf("%d bytes were written to nobody", n)
	}
	if n := l.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	if n := counted(l.cut.WithLabelValues("slow-reader")); n != 1 {
		t.Errorf("%v were counted", n)
	}
}

func TestAnIdleConnectionIsClosedInSilence(t *testing.T) {
	t.Parallel()
	client, server := connect(t, open(t, Options{IdleTimeout: 50 * time.Millisecond}))
	request(t, client, server)
	send(t, server, "HTTP/1.1 204 No Content\r\n\r\n")
	if n, err := server.Read(make([]byte, 100)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
	_ = server.Close()
	if answer, _ := io.ReadAll(client); strings.Count(string(answer), "HTTP/1.1") != 1 {
		t.Errorf("the client reads %q", answer)
	}
}

func TestConnectionsAreBoundedInAllAndByAddress(t *testing.T) {
	t.Parallel()
	for bound, options := range map[string]Options{"all": {MaxOpen: 2}, "address": {MaxOpen: 9, MaxPerAddress: 2}} {
		l := open(t, options)
		first, server := connect(t, l)
		connect(t, l)
		dialed, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		servers.NoError(t, err)
		accepted := make(chan net.Conn, 1)
		go func() {
			if next, err := l.Accept(); err == nil {
				accepted <- next
			}
		}()
		_ = dialed.SetDeadline(time.Now().Add(servers.Patience))
		if answer, err := http.ReadResponse(bufio.NewReader(dialed), nil); err != nil || answer.StatusCode != 400+int(TooMany) || !answer.Close { //nolint:bodyclose // it has none
			t.Errorf("%s: %v, %v", bound, answer, err)
		}
		_ = dialed.Close()
		if n := counted(l.refused.WithLabelValues(bound)); n != 1 {
			t.Errorf("%s: %v were counted", bound, n)
		}
		_, _ = first.Close(), server.Close()
		_ = server.Close() // counts once
		if again, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
			t.Error(err)
		} else {
			defer func() { _ = again.Close() }()
		}
		next := <-accepted
		if l.Open() != 2 {
			t.Errorf("%s: %d are open", bound, l.Open())
		}
		_ = next.Close()
		if n := len(l.addresses); n > 1 {
			t.Errorf("%s: %d addresses are remembered", bound, n)
		}
	}
}

func TestTheWholeNetworkOfACustomerIsOneAddress(t *testing.T) {
	t.Parallel()
	of := func(ip string) any { return AddressOf(remote{ip: net.ParseIP(ip)}) }
	for a, b := range map[string]string{"2001:db8:1:2::3": "2001:db8:1:2:ffff::9", "192.0.2.1": "::ffff:192.0.2.1"} {
		if of(a) != of(b) {
			t.Errorf("%s and %s are two", a, b)
		}
	}
	for a, b := range map[string]string{"2001:db8:1:2::3": "2001:db8:1:3::3", "192.0.2.1": "192.0.2.2"} {
		if of(a) == of(b) {
			t.Errorf("%s and %s are one", a, b)
		}
	}
}

type remote struct {
	net.Conn
	ip   net.IP
	zone string
}

func (r remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: r.ip, Zone: r.zone} }

// failing is a listener whose system has too many files open for a while.
type failing struct {
	net.Listener
	failures int
}

func (f *failing) Accept() (net.Conn, error) {
	if f.failures--; f.failures >= 0 {
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}

func TestAFailureToAcceptDoesNotEndTheListener(t *testing.T) {
	t.Parallel()
	l := open(t, Options{})
	l.Listener = &failing{Listener: l.Listener, failures: 2}
	connect(t, l)
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed one: %v", err)
	}
}

func TestAWatchSeesTheClientLeave(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*net.TCPConn){
		"closed":   func(c *net.TCPConn) { _ = c.Close() },
		"reset":    func(c *net.TCPConn) { _, _ = c.SetLinger(0), c.Close() },
		"half":     func(c *net.TCPConn) { _ = c.CloseWrite() },
		"flooding": func(c *net.TCPConn) { _, _ = c.Write(make([]byte, 2*maxBuffered)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server := connect(t, open(t, Options{}))
			gone, cancel := context.WithCancel(t.Context())
			stop := server.Watch(cancel)
			defer stop()
			leave(client)
			select {
			case <-gone.Done():
			case <-time.After(servers.Patience):
				t.Error("it was not seen")
			}
		})
	}
}

func TestAWatchLosesNothingOfTheNextRequest(t *testing.T) {
	t.Parallel()
	client, server := connect(t, open(t, Options{}))
	first, next := "GET /a HTTP/1.1\r\n\r\n", "GET /b HTTP/1.1\r\n\r\n"
	send(t, client, first)
	received(t, server, len(first))
	stop := server.Watch(func() { t.Error("it is not gone") })
	send(t, client, next[:7])
	stop()
	stop()
	again := server.Watch(func() { t.Error("it is not gone") })
	send(t, client, next[7:])
	again()
	if got := received(t, server, len(next)); got != next {
		t.Errorf("read %q", got)
	}
}

// bound is how long a client may be slow in these tests. Their time is simulated, so
// they take none of it.
const bound = 10 * time.Second

// simulate runs a test in simulated time, with a connection that has no buffer.
func simulate(t *testing.T, test func(t *testing.T, client net.Conn, server *Conn)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newListener(nil, Options{MaxHead: 4096, ReadTimeout: bound, WriteTimeout: bound, IdleTimeout: never, Refuse: refusal}, prometheus.NewRegistry())
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
					if cut := counted(server.listener.cut.WithLabelValues("slow-reader")); (err != nil) != (row.cutAfter > 0) || (cut == 1) != (row.cutAfter > 0) {
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
