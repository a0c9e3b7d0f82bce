package stream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	"triprize/internal/platform/config"
	"triprize/internal/testkit/servers"
)

// patient settings let nothing happen by itself.
func patient() config.Streams {
	return config.Streams{Heartbeat: time.Hour, MaxAge: 10 * time.Hour, Retry: 2 * time.Second, MaxOpen: 100, MaxPerClient: 100}
}

// endsWith is a context that ends with a channel.
type endsWith struct {
	context.Context
	done <-chan struct{}
}

func (u endsWith) Done() <-chan struct{} { return u.done }

func serve(w *bufio.Writer, settings config.Streams, events <-chan Event, done <-chan struct{}) error {
	return Relay(endsWith{context.Background(), done}, w, settings, events, func(e Event) Event { return e })
}

// served runs a stream into a pipe; over tells what it returned.
func served(settings config.Streams, events <-chan Event, done <-chan struct{}) (client *io.PipeReader, over chan error) {
	client, w := io.Pipe()
	over = make(chan error, 1)
	go func() {
		err := serve(bufio.NewWriterSize(w, 1<<20), settings, events, done)
		_ = w.Close()
		over <- err
	}()
	return client, over
}

func await(t *testing.T, over <-chan error) error {
	t.Helper()
	select {
	case err := <-over:
		return err
	case <-time.After(servers.Patience):
		t.Fatal("the stream did not end")
		return nil
	}
}

// until reads what a client gets until the text has been seen.
func until(t *testing.T, client io.Reader, text string) string {
	t.Helper()
	var all strings.Builder
	seen := make(chan error, 1)
	go func() {
		buffer := make([]byte, 1024)
		for !strings.Contains(all.String(), text) {
			n, err := client.Read(buffer)
			all.Write(buffer[:n])
			if err != nil {
				seen <- err
				return
			}
		}
		seen <- nil
	}()
	select {
	case err := <-seen:
		if err != nil {
			t.Fatalf("%v before %q came; got %q", err, text, all.String())
		}
	case <-time.After(servers.Patience):
		t.Fatalf("%q did not come", text)
	}
	return all.String()
}

func TestEachEventIsSentAtOnce(t *testing.T) {
	t.Parallel()
	events := make(chan Event)
	client, over := served(patient(), events, nil)
	until(t, client, "\n\n") // the client sees that the stream stands before there is any event
	for i := range 3 {
		events <- Event{ID: strconv.Itoa(i), Data: []byte("x")}
		until(t, client, "id: "+strconv.Itoa(i)+"\ndata: x\n\n")
	}
	close(events)
	until(t, client, "}\n\n")
	if err := await(t, over); err != nil {
		t.Error(err)
	}
}

func TestAStreamBeginsWithAHintThatVaries(t *testing.T) {
	t.Parallel()
	events := make(chan Event)
	close(events)
	hints := make(map[string]bool)
	for range 200 {
		var sent bytes.Buffer
		if err := serve(bufio.NewWriter(&sent), patient(), events, nil); err != nil {
			t.Fatal(err)
		}
		_, _, retry := parse(sent.String())
		if ms, err := strconv.Atoi(retry); err != nil || ms < 2000 || ms > 3000 {
			t.Fatalf("the hint is %q", retry)
		}
		hints[retry] = true
	}
	if len(hints) < 10 { // of a thousand possible ones
		t.Errorf("200 streams got %d different hints", len(hints))
	}
}

func TestASilentStreamHasHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		settings := patient()
		settings.Heartbeat = time.Second
		done := make(chan struct{})
		began := time.Now()
		client, over := served(settings, nil, done)
		for i := range 3 {
			until(t, client, ": ping\n\n")
			if after := time.Since(began); after != time.Duration(i+1)*settings.Heartbeat {
				t.Errorf("heartbeat %d came after %s", i+1, after)
			}
		}
		close(done)
		until(t, client, "\n\n")
		if err := await(t, over); err != nil {
			t.Error(err)
		}
	})
}

// ending is the last event of a stream.
func ending(reason string) received {
	return received{name: "end", data: `{"reason":"` + reason + `"}`}
}

func TestAStreamEndsWithItsSource(t *testing.T) {
	t.Parallel()
	events := make(chan Event, 2)
	events <- Event{Data: []byte("a")}
	events <- Event{Data: []byte("b")}
	close(events)
	var sent bytes.Buffer
	if err := serve(bufio.NewWriter(&sent), patient(), events, nil); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := parse(sent.String()); len(got) != 3 || got[1].data != "b" || got[2] != ending(Over) {
		t.Errorf("received %q", got)
	}
}

func TestAStreamEndsAfterTheLastEvent(t *testing.T) {
	t.Parallel()
	word := func(s string) Event { return Event{Name: "job", Data: []byte(s), Last: s == "final"} }
	source := make(chan string, 2)
	source <- "final"
	source <- "too much"
	var sent bytes.Buffer
	if err := Relay(t.Context(), bufio.NewWriter(&sent), patient(), source, word, "present"); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := parse(sent.String()); len(got) != 3 || got[0].data != "present" || got[1].data != "final" || got[2] != ending(Over) {
		t.Errorf("received %q", got)
	}
	sent.Reset()
	if err := Relay(t.Context(), bufio.NewWriter(&sent), patient(), source, word, "final"); err != nil { // it was over before it began
		t.Fatal(err)
	}
	if got, _, _ := parse(sent.String()); len(got) != 2 || got[0].data != "final" || got[1] != ending(Over) || len(source) != 1 {
		t.Errorf("received %q", got)
	}
}

func TestAnOldStreamEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		settings := patient()
		settings.MaxAge = 10 * time.Second
		began := time.Now()
		client, over := served(settings, make(chan Event), nil)
		all, err := io.ReadAll(client)
		if err := errors.Join(err, await(t, over)); err != nil {
			t.Error(err)
		}
		if got, _, _ := parse(string(all)); len(got) != 1 || got[0] != ending(Age) {
			t.Errorf("received %q", got)
		}
		if age := time.Since(began); age > settings.MaxAge || age < settings.MaxAge*9/10 {
			t.Errorf("it ended after %s", age)
		}
	})
}

// busy is a source that always has an event ready.
func busy(t *testing.T) <-chan Event {
	events, stop := make(chan Event, 64), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case events <- Event{ID: "7", Data: []byte("first line\nsecond line")}:
			case <-stop:
				return
			}
		}
	}()
	return events
}

func TestADrainingServerEndsASilentStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		client, over := served(patient(), make(chan Event), done)
		until(t, client, "\n\n")
		synctest.Wait() // it waits for an event now
		close(done)
		until(t, client, "event: end\ndata: {\"reason\":\"shutdown\"}\n\n")
		if err := await(t, over); err != nil {
			t.Error(err)
		}
	})
}

func TestADrainingServerEndsABusyStreamBetweenEvents(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	client, over := served(patient(), busy(t), done)
	begun := until(t, client, "second line")
	close(done)
	rest, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	if err := await(t, over); err != nil {
		t.Error(err)
	}
	if all := begun + string(rest); !strings.HasSuffix(all, "data: first line\ndata: second line\n\nevent: end\ndata: {\"reason\":\"shutdown\"}\n\n") {
		t.Errorf("it ended with %q", all[max(0, len(all)-60):])
	}
}

func TestEndsDoNotWaitForAPauseInTheEvents(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	close(done)
	events := make(chan Event, 100)
	for range cap(events) {
		events <- Event{Data: []byte("x")}
	}
	for range 50 { // a select without preference would send about 50 events
		var sent bytes.Buffer
		if err := serve(bufio.NewWriter(&sent), patient(), events, done); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := parse(sent.String()); len(got) != 1 || got[0] != ending(Shutdown) {
			t.Fatalf("%d events were sent, the last %q", len(got), got[len(got)-1])
		}
	}
}

func TestAClientThatIsGoneEndsTheStream(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]config.Streams{"at an event": patient(), "at a heartbeat": func() config.Streams {
		s := patient()
		s.Heartbeat = 5 * time.Millisecond
		return s
	}()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := make(chan Event, 1)
			client, over := served(settings, events, nil)
			until(t, client, "\n\n")
			_ = client.Close()
			if name == "at an event" {
				events <- Event{Data: []byte("x")}
			}
			if err := await(t, over); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func TestABadEventEndsTheStreamWithAnError(t *testing.T) {
	t.Parallel()
	events := make(chan Event, 1)
	events <- Event{ID: "a\nb"}
	if err := serve(bufio.NewWriter(io.Discard), patient(), events, nil); !errors.Is(err, ErrField) {
		t.Errorf("it ended with %v", err)
	}
}

// silent is a logger that says nothing.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Through the real server: events come one by one, a slow client misses what was
// replaced meanwhile, and one that hangs up is noticed.
func TestStreamsThroughTheServer(t *testing.T) {
	t.Parallel()
	settings := patient()
	settings.Heartbeat = 20 * time.Millisecond
	newest := make(chan Event, 1) // as a subscription is: the next replaces what was not taken
	over := make(chan error, 1)
	listener := fasthttputil.NewInmemoryListener()
	server := &fasthttp.Server{Logger: silent{}, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType(ContentType)
		ctx.SetBodyStreamWriter(func(w *bufio.Writer) { over <- serve(w, settings, newest, nil) })
	}}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return listener.Dial() }}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = listener.Close()
		_ = server.Shutdown()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	response, err := (&http.Client{Transport: transport}).Get("http://server/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if got := response.Header.Get("Content-Type"); got != ContentType {
		t.Errorf("the content type is %s", got)
	}
	newest <- Event{ID: "a", Data: []byte("x")}
	until(t, response.Body, "id: a\ndata: x\n\n")

	// Until the connection is full, events are taken; then the newest waits.
	payload := bytes.Repeat([]byte("x"), 64<<10)
	const last = 2000
	for i := range last + 1 {
		select {
		case <-newest:
		default:
		}
		newest <- Event{ID: strconv.Itoa(i), Data: payload}
	}
	read := until(t, response.Body, "id: "+strconv.Itoa(last)+"\n")
	events, _, _ := parse(read)
	if len(events) > last/2 {
		t.Errorf("a client that did not read got %d of %d events", len(events), last)
	}
	_ = response.Body.Close()
	if err := await(t, over); err == nil {
		t.Error("the stream ended well although its client hung up")
	}
}

// A client whose key is revoked knows that it cannot come back.
func TestAStreamOfARevokedKeySaysSo(t *testing.T) {
	t.Parallel()
	ctx, revoke := context.WithCancelCause(t.Context())
	revoke(ErrRevoked)
	var sent bytes.Buffer
	if err := Relay(ctx, bufio.NewWriter(&sent), patient(), make(chan Event), func(e Event) Event { return e }); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := parse(sent.String()); len(got) != 1 || got[0] != ending(Revoked) {
		t.Errorf("received %q", got)
	}
}
