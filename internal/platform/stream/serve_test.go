package stream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

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
		servers.NoError(t, serve(bufio.NewWriter(&sent), patient(), events, nil))
		_, retry := parse(sent.String())
		if ms, err := strconv.Atoi(retry); err != nil || ms < 2000 || ms > 3000 {
			t.Fatalf("the hint is %q", retry)
		}
		hints[retry] = true
	}
	if len(hints) < 10 { // of a thousand possible ones
		t.Errorf("200 streams got %d different hints", len(hints))
	}
}

// ending is the last event of a stream.
func ending(reason string) received {
	return received{name: "end", data: `{"reason":"` + reason + `"}`}
}

// A stream ends after the last event, also when that is the first, with its source, and at once when its context
// ends, however many events wait.
func TestAStreamSaysWhyItEnds(t *testing.T) {
	t.Parallel()
	revoked, revoke := context.WithCancelCause(t.Context())
	revoke(ErrRevoked)
	over, shutdown := context.WithCancel(t.Context())
	shutdown()
	const bad = "a\nb"
	many := slices.Repeat([]string{"x"}, 100)
	for name, row := range map[string]struct {
		ctx     context.Context
		first   []string
		waiting []string // in the source
		open    bool     // the source goes on
		want    []string // data
		reason  string
		err     error
	}{
		"its source is closed":       {t.Context(), nil, []string{"a", "b"}, false, []string{"a", "b"}, Over, nil},
		"the last event":             {t.Context(), []string{"present"}, []string{"last", "too much"}, true, []string{"present", "last"}, Over, nil},
		"it was over before":         {t.Context(), []string{"last"}, many, true, []string{"last"}, Over, nil},
		"shutdown":                   {over, nil, many, true, nil, Shutdown, nil},
		"its key is revoked":         {revoked, nil, many, true, nil, Revoked, nil},
		"an event that is not to be": {t.Context(), nil, []string{bad}, true, nil, "", ErrField},
	} {
		for range 50 { // a select without preference would send some of the events
			source := make(chan string, 100)
			for _, one := range row.waiting {
				source <- one
			}
			if !row.open {
				close(source)
			}
			var sent bytes.Buffer
			err := Relay(row.ctx, bufio.NewWriter(&sent), patient(), source, func(s string) Event {
				if s == bad {
					return Event{ID: s}
				}
				return Event{Name: "job", Data: []byte(s), Last: s == "last"}
			}, row.first...)
			var want []received
			for _, data := range row.want {
				want = append(want, received{name: "job", data: data})
			}
			if row.reason != "" {
				want = append(want, ending(row.reason))
			}
			if got, _ := parse(sent.String()); !errors.Is(err, row.err) || !slices.Equal(got, want) {
				t.Fatalf("%s: received %q, %v", name, got, err)
			}
		}
	}
}

func TestASilentStreamHasHeartbeatsAndEndsWithItsAgeOrAtAShutdown(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{Age, Shutdown} {
		synctest.Test(t, func(t *testing.T) {
			settings := patient()
			settings.Heartbeat, settings.MaxAge = time.Second, 10*time.Second
			done := make(chan struct{})
			began := time.Now()
			client, over := served(settings, make(chan Event), done)
			for i := range 3 {
				until(t, client, ": ping\n\n")
				if after := time.Since(began); after != time.Duration(i+1)*settings.Heartbeat {
					t.Errorf("heartbeat %d came after %s", i+1, after)
				}
			}
			if reason == Shutdown {
				synctest.Wait() // it waits for an event now
				close(done)
			}
			rest, err := io.ReadAll(client)
			if err := errors.Join(err, await(t, over)); err != nil {
				t.Error(err)
			}
			if got, _ := parse(string(rest)); len(got) != 1 || got[0] != ending(reason) {
				t.Errorf("received %q", got)
			}
			if age := time.Since(began); reason == Age && (age > settings.MaxAge || age < settings.MaxAge*9/10) || reason == Shutdown && age != 3*time.Second {
				t.Errorf("it ended after %s", age)
			}
		})
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// received is an event as a client sees it.
type received struct{ id, name, data string }

// parse reads a stream as the standard tells clients to. What follows the last empty line is not an event.
func parse(text string) (events []received, retry string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var id, name string
	var data strings.Builder
	for _, line := range lines[:len(lines)-1] {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data.Len() > 0 {
				events = append(events, received{id, name, strings.TrimSuffix(data.String(), "\n")})
			}
			name = ""
			data.Reset()
		case field == "id":
			id = value
		case field == "event":
			name = value
		case field == "data":
			data.WriteString(value + "\n")
		case field == "retry":
			retry = value
		}
	}
	return events, retry
}

func TestAnEventArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		send func(w *writer) error
		raw  string
	}{
		"all fields":   {event(Event{ID: "7", Name: "campaign", Data: []byte(`{"a":1}`)}), "id: 7\nevent: campaign\ndata: {\"a\":1}\n\n"},
		"data alone":   {event(Event{Data: []byte("x")}), "data: x\n\n"},
		"lines":        {event(Event{Data: []byte("a\nb")}), "data: a\ndata: b\n\n"},
		"other breaks": {event(Event{Data: []byte("a\r\nb\rc")}), "data: a\ndata: b\ndata: c\n\n"},
		"like fields":  {event(Event{Data: []byte("a\n\nid: 9\n: no comment")}), "data: a\ndata: \ndata: id: 9\ndata: : no comment\n\n"},
		"spaces":       {event(Event{ID: " 7", Data: []byte(" x")}), "id:  7\ndata:  x\n\n"},
		"nothing":      {event(Event{ID: "7"}), "id: 7\ndata: \n\n"},
		"a heartbeat":  {(*writer).Ping, ": ping\n\n"},
		"a hint":       {func(w *writer) error { return w.Retry(2500 * time.Millisecond) }, "retry: 2500\n\n"},
	} {
		var sent bytes.Buffer
		w := newWriter(bufio.NewWriter(&sent))
		if err := errors.Join(row.send(w), row.send(w)); err != nil || sent.String() != row.raw+row.raw {
			t.Errorf("%s: sent %q, want %q twice, %v", name, sent.String(), row.raw, err)
		}
	}
}

func event(e Event) func(*writer) error { return func(w *writer) error { return w.Event(e) } }

func TestAnIDOrNameThatBreaksTheFormatIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []Event{{ID: "1\ndata: forged"}, {ID: "1\rx"}, {ID: "1\x00"}, {Name: "a\nid: 2"}, {Name: "a\r"}} {
		var sent bytes.Buffer
		w := newWriter(bufio.NewWriter(&sent))
		if err := w.Event(bad); !errors.Is(err, ErrField) {
			t.Errorf("%+v: %v", bad, err)
		}
		if err := w.Event(Event{Data: []byte("x")}); err != nil || sent.String() != "data: x\n\n" {
			t.Errorf("%+v left %q behind, %v", bad, sent.String(), err)
		}
	}
}
