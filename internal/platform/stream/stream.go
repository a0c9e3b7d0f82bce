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
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"triprize/internal/platform/config"
)

// ContentType is the media type of a stream.
const ContentType = "text/event-stream"

// Event is one message to the client.
type Event struct {
	ID   string // sent back as Last-Event-ID on reconnect; empty: the previous id stays
	Name string
	Data []byte // one line of JSON
	Last bool   // the stream ends after it
}

// send sends an event and flushes. Ids and names are ours, and JSON has no line breaks. The data, which may be long, is
// not copied. An error means that the client is gone.
func send(w *bufio.Writer, e Event) error {
	if e.ID != "" {
		_, _ = w.WriteString("id: " + e.ID + "\n") // an error stays in w
	}
	_, _ = w.WriteString("event: " + e.Name + "\ndata: ")
	_, _ = w.Write(e.Data)
	return sendText(w, "\n\n")
}

func sendText(w *bufio.Writer, text string) error {
	_, _ = w.WriteString(text)
	return w.Flush()
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
	reason, err := relay(ctx, w, settings, source, event, first)
	if err != nil {
		return err
	}
	return send(w, Event{Name: "end", Data: []byte(`{"reason":"` + reason + `"}`)})
}

const (
	maxAge    = 10 * time.Minute // then the client reconnects, perhaps to another process, and its credential is checked again
	heartbeat = 15 * time.Second // an idle stream gets a comment after this, before a proxy closes it
	retry     = 2 * time.Second  // plus up to half of it as jitter
)

// relay returns why the stream ends.
func relay[T any](ctx context.Context, w *bufio.Writer, settings config.Streams, source <-chan T, event func(T) Event, first []T) (reason string, err error) {
	retry, maxAge, heartbeat := cmp.Or(settings.Retry, retry), cmp.Or(settings.MaxAge, maxAge), cmp.Or(settings.Heartbeat, heartbeat)
	if err := sendText(w, fmt.Sprintf("retry: %d\n\n", (retry+jitter(retry/2)).Milliseconds())); err != nil {
		return "", err
	}
	for _, one := range first {
		e := event(one)
		if err := send(w, e); err != nil || e.Last {
			return Over, err
		}
	}
	expiry := time.NewTimer(maxAge - jitter(maxAge/10))
	defer expiry.Stop()
	idle := time.NewTimer(heartbeat)
	defer idle.Stop()
	for {
		if ctx.Err() != nil { // a busy source cannot delay the end
			return endOf(ctx), nil
		}
		var err error
		select {
		case <-ctx.Done():
			return endOf(ctx), nil
		case <-expiry.C:
			return Age, nil
		case <-idle.C:
			err = sendText(w, ": ping\n\n") // a comment, which clients ignore
		case one, open := <-source:
			if !open {
				return Over, nil
			}
			e := event(one)
			if err = send(w, e); e.Last {
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
