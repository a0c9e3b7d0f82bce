package sender

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/dns/dnsmessage"

	"triprize/internal/testkit/servers"
)

// unhurried is a timeout that no machine is too slow for; brief is for what never ends.
const (
	unhurried = time.Minute
	brief     = 200 * time.Millisecond
)

func sender(t *testing.T, timeout time.Duration, o Options) *Sender {
	t.Helper()
	s := NewSender(guard(t, "127.0.0.1/32"), timeout, o)
	t.Cleanup(s.Close)
	return s
}

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server.URL
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { followed.Store(true) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, status) })
		answer := sender(t, unhurried, Options{}).Send(t.Context(), url, Message{ID: "1", Secrets: []string{NewSecret()}})
		if answer.Arrived() || answer.Status != status || !strings.Contains(answer.Text(), "redirects are not followed") {
			t.Errorf("%d: %+v, %s", status, answer, answer.Text())
		}
	}
	if followed.Load() {
		t.Error("it was followed")
	}
}

func TestRetryAfterIsReadInBothForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "Sun, 22 Nov 2026 13:00:00 GMT": time.Hour, "Sun, 22 Nov 2026 11:00:00 GMT": 0,
		"": 0, "-5": 0, "soon": 0, "99999999999999999999": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// raw serves connections with what write says, for every request.
func raw(t *testing.T, write func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	servers.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				buffer := make([]byte, 4096)
				_, _ = c.Read(buffer)
				write(c)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// forever writes text until the other side hangs up.
func forever(c net.Conn, text string, pause time.Duration) {
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
		time.Sleep(pause)
	}
}

func TestNoReceiverKeepsASenderForEver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write   func(c net.Conn)
		arrived bool
	}{
		"hangs":                 {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, false},
		"a header byte by byte": {func(c net.Conn) { forever(c, "H", brief/10) }, false},
		"endless headers": {func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			forever(c, "x: "+strings.Repeat("y", 1000)+"\r\n", 0)
		}, false},
		"only early hints": {func(c net.Conn) { forever(c, "HTTP/1.1 103 Early Hints\r\n\r\n", 0) }, false},
		"an endless body": {func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			forever(c, strings.Repeat("z", 1000), 0)
		}, true},
		"a body byte by byte": {func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); forever(c, "z", brief/10) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answer Answer
			for timeout := brief; timeout < 2*unhurried; timeout *= 2 { // a slow machine needs its time for those that answer
				if answer = sender(t, timeout, Options{}).Send(t.Context(), raw(t, c.write), Message{ID: "1", Secrets: []string{NewSecret()}}); answer.Arrived() == c.arrived {
					break
				}
			}
			if answer.Arrived() != c.arrived {
				t.Errorf("got %+v, %s", answer, answer.Text())
			}
			if !c.arrived && (!answer.Unavailable() || answer.Text() == "") {
				t.Errorf("it is well: %+v", answer)
			}
		})
	}
}

func TestOfAnAnswerOnlyTheFirstBytesAreRead(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4*maxAnswerBytes)) })
	var read bytes.Buffer
	answer := sender(t, unhurried, Options{}).post(t.Context(), url, Message{ID: "1", Secrets: []string{NewSecret()}}, &read)
	if !answer.Arrived() || read.Len() > maxAnswerBytes {
		t.Errorf("got %+v, and %d bytes were read", answer, read.Len())
	}
}

// What is stored of an answer fits its columns, for every answer: otherwise nothing
// that was sent would be noted, and all of it be sent again for ever.
func TestWhatAnAnswerSaysCanBeStored(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"a status below all": "HTTP/1.1 042 Odd\r\nContent-Length: 0\r\n\r\n",
		"status zero":        "HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n",
		"another protocol":   "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"NUL in a header":    "HTTP/1.1 200 OK\r\nno\x00header\r\n\r\n",
		"no UTF-8":           "HTTP/1.1 200 OK\r\nno\xff\x1b[2Jheader\r\n\r\n",
		"a very long header": "HTTP/1.1 200 OK\r\n" + strings.Repeat("\xc3\xa4", 4000) + "\r\n\r\n",
		"too long a header":  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + strings.Repeat("y", 2*maxHeaderBytes) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(c net.Conn) { _, _ = io.WriteString(c, head) })
			answer := sender(t, unhurried, Options{}).Send(t.Context(), url, Message{ID: "1", Secrets: []string{NewSecret()}})
			text := answer.Text()
			if answer.Status != 0 && (answer.Status < 100 || answer.Status > 999) || answer.Arrived() || !answer.Unavailable() {
				t.Errorf("got %+v", answer)
			}
			if n := utf8.RuneCountInString(text); n < 1 || n > 500 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
				t.Errorf("got %q", text)
			}
		})
	}
}

// names is a resolver whose answers a test chooses; no address: there is no such name. A question that is asked again, as on
// a slow machine, has the same answer.
func names(t *testing.T, answer func() [4]byte) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	servers.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q, a := m.Questions[0], answer(); q.Type == dnsmessage.TypeA && a != [4]byte{} {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 0}, Body: &dnsmessage.AResource{A: a}}}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(packed, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// The check is on the address of each connection: a name that was harmless when it was looked
// at first leads nowhere when it leads elsewhere.
func TestANameThatLeadsElsewhereTheSecondTimeLeadsNowhere(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	l, err := net.Listen("tcp", "0.0.0.0:0") // 127.0.0.1 is allowed here, and 127.0.0.2 is not
	servers.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { arrived.Add(1); w.Header().Set("Connection", "close") })}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := sender(t, unhurried, Options{Resolver: names(t, func() [4]byte { return [4]byte{127, 0, 0, byte(1 + arrived.Load())} })})
	url := "http://rebinding.example:" + port + "/"
	first := s.Send(t.Context(), url, Message{ID: "1", Secrets: []string{NewSecret()}})
	if !first.Arrived() {
		t.Fatalf("the first: %+v, %s", first, first.Text())
	}
	second := s.Send(t.Context(), url, Message{ID: "2", Secrets: []string{NewSecret()}})
	if second.Arrived() || !errors.Is(second.Err, errAddress) || !strings.Contains(second.Text(), "127.0.0.2") {
		t.Errorf("the second: %+v, %s", second, second.Text())
	}
	if arrived.Load() != 1 {
		t.Errorf("%d arrived", arrived.Load())
	}
}

// The setting has changed since the endpoint was made.
func TestAURLThatIsAllowedNoLongerIsNotAsked(t *testing.T) {
	t.Parallel()
	s := NewSender(guard(t, ""), unhurried, Options{})
	t.Cleanup(s.Close)
	answer := s.Send(t.Context(), "http://127.0.0.1/", Message{ID: "1", Secrets: []string{NewSecret()}})
	if answer.Failure != Unreachable || !strings.Contains(answer.Text(), "must begin with https") {
		t.Errorf("got %+v, %s", answer, answer.Text())
	}
}

// Which addresses are allowed depends on it.
func TestOnlyHTTPSGoesTheWayOfHTTPS(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{"http://127.0.0.1/": true, "https://127.0.0.1/": false} {
		var dialled []bool
		s := sender(t, unhurried, Options{Transport: func(plain bool, made *http.Transport) {
			made.DialContext = func(context.Context, string, string) (net.Conn, error) {
				dialled = append(dialled, plain)
				return nil, net.ErrClosed
			}
		}})
		if answer := s.Send(t.Context(), url, Message{ID: "1", Secrets: []string{NewSecret()}}); answer.Err == nil || len(dialled) != 1 || dialled[0] != want {
			t.Errorf("%s: %+v, dialled %v", url, answer, dialled)
		}
	}
}

func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	t.Parallel()
	for _, transport := range []*http.Transport{sender(t, brief, Options{}).https, sender(t, brief, Options{}).plain} {
		if transport.Proxy != nil {
			t.Errorf("got %+v", transport)
		}
	}
}

func TestWhatHasEndedIsNotSent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	answer := sender(t, unhurried, Options{}).Send(ctx, url, Message{ID: "1", Secrets: []string{NewSecret()}})
	if answer.Arrived() || answer.Err == nil {
		t.Errorf("got %+v", answer)
	}
}
