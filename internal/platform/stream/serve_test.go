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
		events <- Event{ID: strconv.Itoa(i), Name: "n", Data: []byte("x")}
		until(t, client, "id: "+strconv.Itoa(i)+"\nevent: n\ndata: x\n\n")
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
		hint, _, _ := strings.Cut(sent.String(), "\n\n")
		if ms, err := strconv.Atoi(strings.TrimPrefix(hint, "retry: ")); err != nil || ms < 2000 || ms > 3000 {
			t.Fatalf("the hint is %q", hint)
		}
		hints[hint] = true
	}
	if len(hints) < 10 { // of a thousand possible ones
		t.Errorf("200 streams got %d different hints", len(hints))
	}
}

// ending is the last event of a stream.
func ending(reason string) string { return "event: end\ndata: {\"reason\":\"" + reason + "\"}\n\n" }

// A stream ends after the last event, also when that is the first, with its source, and at once when its context
// ends, however many events wait.
func TestAStreamSaysWhyItEnds(t *testing.T) {
	t.Parallel()
	revoked, revoke := context.WithCancelCause(t.Context())
	revoke(ErrRevoked)
	over, shutdown := context.WithCancel(t.Context())
	shutdown()
	many := slices.Repeat([]string{"x"}, 100)
	for name, row := range map[string]struct {
		ctx     context.Context
		first   []string
		waiting []string // in the source
		open    bool     // the source goes on
		want    []string // data
		reason  string
	}{
		"its source is closed": {t.Context(), nil, []string{"a", "b"}, false, []string{"a", "b"}, Over},
		"the last event":       {t.Context(), []string{"present"}, []string{"last", "too much"}, true, []string{"present", "last"}, Over},
		"it was over before":   {t.Context(), []string{"last"}, many, true, []string{"last"}, Over},
		"shutdown":             {over, nil, many, true, nil, Shutdown},
		"its key is revoked":   {revoked, nil, many, true, nil, Revoked},
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
				return Event{ID: s, Name: "job", Data: []byte(s), Last: s == "last"}
			}, row.first...)
			var want []string
			for _, data := range row.want {
				want = append(want, "id: "+data+"\nevent: job\ndata: "+data+"\n\n")
			}
			want = append(want, ending(row.reason))
			if got := sent.String(); err != nil || got[strings.Index(got, "\n\n")+2:] != strings.Join(want, "") {
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
			if events := strings.ReplaceAll(string(rest), ": ping\n\n", ""); events != ending(reason) {
				t.Errorf("received %q", rest)
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
