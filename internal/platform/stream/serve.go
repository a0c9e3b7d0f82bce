package stream

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"triprize/internal/platform/config"
)

// The reasons why a stream ends: the data of its last event, which is named end. A stream
// without it was cut.
const (
	Over     = "over"     // events is closed, or one was the last
	Age      = "age"      // it is too old
	Shutdown = "shutdown" // the context has ended
	Revoked  = "revoked"  // the same, because of ErrRevoked
)

// ErrRevoked is the cause of a context that ends because the key of the client is revoked.
var ErrRevoked = errors.New("stream: the key is revoked")

// Relay sends events until source is closed, one was the last, the stream is too old, or
// ctx ends; then it says why and returns nil. An error means that the client is gone.
// It flushes after each event and after each heartbeat. event converts each value of the
// source to an Event. The values in first are sent before those of the source.
func Relay[T any](ctx context.Context, w *bufio.Writer, settings config.Streams, source <-chan T, event func(T) Event, first ...T) error {
	out := newWriter(w)
	reason, err := relay(ctx, out, settings, source, event, first)
	if err != nil {
		return err
	}
	return out.Event(Event{Name: "end", Data: []byte(`{"reason":"` + reason + `"}`)})
}

const (
	maxAge    = 10 * time.Minute // a stream ends after about this time. The client connects again, perhaps to another process, and its credential is checked again.
	heartbeat = 15 * time.Second // a silent stream gets a comment after this, before a proxy gives it up
	retry     = 2 * time.Second  // clients wait this long before they connect again, or up to half as long again
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
	tooOld := time.NewTimer(maxAge - jitter(maxAge/10))
	defer tooOld.Stop()
	silence := time.NewTimer(heartbeat)
	defer silence.Stop()
	for {
		select { // checked first, so that a busy source cannot delay the end
		case <-ctx.Done():
			return endOf(ctx), nil
		case <-tooOld.C:
			return Age, nil
		default:
		}
		var err error
		select {
		case <-ctx.Done():
			return endOf(ctx), nil
		case <-tooOld.C:
			return Age, nil
		case <-silence.C:
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
		silence.Reset(heartbeat)
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
