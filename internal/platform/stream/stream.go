// Package stream sends server-sent events ([Relay]).
//
// The format is section 9.2 of the WHATWG HTML standard. A stream begins with the reconnect delay (retry).
// Events follow, with a comment as heartbeat in between. It ends after the last event, when its source is
// closed, at its maximum age, when its key is revoked, or at shutdown, always between two events. An event
// named end has the reason. Reconnect delay and maximum age have jitter, so that clients do not reconnect all
// at once.
//
// Nothing is queued here. The source should be a channel with only the newest value. A client that does not
// read blocks its stream in a write until the server's write deadline.
package stream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"triprize/internal/platform/config"
)

// ContentType is the media type of a stream.
const ContentType = "text/event-stream"

// Event is one message to the client.
type Event struct {
	ID   string // sent back as Last-Event-ID on reconnect; empty: the previous id stays
	Name string // empty: "message"
	Data []byte // UTF-8 text; all line breaks arrive as \n
	Last bool   // the stream ends after it
}

// ErrField means that an id or a name has a line break or a NUL and cannot be sent.
var ErrField = errors.New("stream: the id or the name of an event has a line break or a NUL")

// forbidden are line breaks and NUL, which makes clients ignore an id.
const forbidden = "\r\n\x00"

// writer writes events. Each method flushes. An error other than ErrField means that the client is gone.
type writer struct {
	out   *bufio.Writer
	frame []byte // reused
}

// newWriter returns a writer to out.
func newWriter(out *bufio.Writer) *writer { return &writer{out: out} }

// lineBreaks normalizes line breaks.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Event sends one event. Empty data is sent too, so that clients see the event.
func (w *writer) Event(e Event) error {
	if strings.ContainsAny(e.ID, forbidden) || strings.ContainsAny(e.Name, forbidden) {
		return ErrField
	}
	w.frame = w.frame[:0]
	if e.ID != "" {
		w.line("id", e.ID)
	}
	if e.Name != "" {
		w.line("event", e.Name)
	}
	if !bytes.ContainsAny(e.Data, "\r\n") {
		return w.sendLine(e.Data)
	}
	for line := range strings.SplitSeq(lineBreaks.Replace(string(e.Data)), "\n") {
		w.line("data", line)
	}
	return w.send()
}

// sendLine ends the frame with one line of data. It does not copy the data, which may be long.
func (w *writer) sendLine(data []byte) error {
	w.frame = append(w.frame, "data: "...)
	for _, part := range [][]byte{w.frame, data, []byte("\n\n")} {
		if _, err := w.out.Write(part); err != nil {
			return err
		}
	}
	return w.out.Flush()
}

// Ping sends a comment, which clients ignore.
func (w *writer) Ping() error {
	w.frame = append(w.frame[:0], ": ping\n"...)
	return w.send()
}

// Retry sends the reconnect delay.
func (w *writer) Retry(after time.Duration) error {
	w.frame = w.frame[:0]
	w.line("retry", strconv.FormatInt(after.Milliseconds(), 10))
	return w.send()
}

func (w *writer) line(field, value string) {
	w.frame = append(w.frame, field...)
	w.frame = append(w.frame, ": "...)
	w.frame = append(w.frame, value...)
	w.frame = append(w.frame, '\n')
}

// send ends the frame with an empty line.
func (w *writer) send() error {
	w.frame = append(w.frame, '\n')
	if _, err := w.out.Write(w.frame); err != nil {
		return err
	}
	return w.out.Flush()
}

// The reasons in the event named end.
const (
	Over     = "over"     // the source is closed, or an event was the last
	Age      = "age"      // the maximum age is reached
	Shutdown = "shutdown" // the context has ended
	Revoked  = "revoked"  // the context has ended with ErrRevoked
)

// ErrRevoked is the cause of a context that ends because the client's key is revoked.
var ErrRevoked = errors.New("stream: the key is revoked")

// Relay sends events until source is closed, an event is the last, the maximum age is reached, or ctx ends. Then it
// sends the reason and returns nil. An error means that the client is gone. Relay flushes after each event and
// heartbeat. event converts each value of the source to an Event. first is sent before the values of the source.
func Relay[T any](ctx context.Context, w *bufio.Writer, settings config.Streams, source <-chan T, event func(T) Event, first ...T) error {
	out := newWriter(w)
	reason, err := relay(ctx, out, settings, source, event, first)
	if err != nil {
		return err
	}
	return out.Event(Event{Name: "end", Data: []byte(`{"reason":"` + reason + `"}`)})
}

const (
	maxAge    = 10 * time.Minute // then the client reconnects, perhaps to another process, and its credential is checked again
	heartbeat = 15 * time.Second // an idle stream gets a comment after this, before a proxy closes it
	retry     = 2 * time.Second  // plus up to half of it as jitter
)

// relay returns why the stream ends.
func relay[T any](ctx context.Context, out *writer, settings config.Streams, source <-chan T, event func(T) Event, first []T) (reason string, err error) {
	retry, maxAge, heartbeat := cmp.Or(settings.Retry, retry), cmp.Or(settings.MaxAge, maxAge), cmp.Or(settings.Heartbeat, heartbeat)
	if err := out.Retry(retry + jitter(retry/2)); err != nil {
		return "", err
	}
	for _, one := range first {
		e := event(one)
		if err := out.Event(e); err != nil || e.Last {
			return Over, err
		}
	}
	expiry := time.NewTimer(maxAge - jitter(maxAge/10))
	defer expiry.Stop()
	idle := time.NewTimer(heartbeat)
	defer idle.Stop()
	for {
		select { // checked first, so that a busy source cannot delay the end
		case <-ctx.Done():
			return endOf(ctx), nil
		case <-expiry.C:
			return Age, nil
		default:
		}
		var err error
		select {
		case <-ctx.Done():
			return endOf(ctx), nil
		case <-expiry.C:
			return Age, nil
		case <-idle.C:
			err = out.Ping()
		case one, open := <-source:
			if !open {
				return Over, nil
			}
			e := event(one)
			if err = out.Event(e); e.Last {
				return Over, err
			}
		}
		if err != nil {
			return "", err
		}
		idle.Reset(heartbeat)
	}
}

func endOf(ctx context.Context) string {
	if errors.Is(context.Cause(ctx), ErrRevoked) {
		return Revoked
	}
	return Shutdown
}

// jitter returns a random duration up to limit.
func jitter(limit time.Duration) time.Duration {
	return rand.N(limit + 1) //nolint:gosec // a jitter is no secret
}
