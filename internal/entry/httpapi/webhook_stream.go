package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/stream"
	"triprize/internal/service/listeners"
	"triprize/internal/store/agenda"
	"triprize/internal/store/apikey"
	"triprize/internal/store/webhook"
)

// StreamWebhooks sends the events that an endpoint of the caller would be sent.
func (s webhookHandlers) StreamWebhooks(ctx context.Context, r operations.StreamWebhooksRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	events, err := eventsOf(r.Params.Events)
	if err != nil {
		return nil, err
	}
	place := response.ValueOf(r.Params.LastEventID)
	release, err := s.streams.enter(who.Caller, s.mostStreams(who.Caller))
	if err != nil {
		return nil, err
	}
	var listener *listeners.Listener
	open := func() (err error) {
		listener, err = s.listeners.Open(ctx, who.Client, who.KeyPrefix, events, place)
		return err
	}
	return response.Stream{Call: who, Draining: s.draining, Stop: release, Open: open, Run: func(ctx context.Context, w *bufio.Writer) {
		if place == "" {
			place = listener.Place(0)
		}
		first := stream.Event{ID: place, Name: "listening", Data: []byte("{}")} // from here on nothing is lost
		s.relay(ctx, w, func(ctx context.Context, out chan<- stream.Event) { s.fetch(ctx, listener, who.KeyPrefix, out) }, first)
	}}, nil
}

// relay sends what events passes on until that returns, or the stream ends: its context ends
// then.
func (s *intake) relay(ctx context.Context, w *bufio.Writer, events func(ctx context.Context, out chan<- stream.Event), first ...stream.Event) {
	source := make(chan stream.Event)
	passing, stop := context.WithCancel(context.WithoutCancel(ctx)) // Relay says why it ends
	go func() {
		defer close(source)
		events(passing, source)
	}()
	_ = stream.Relay(ctx, w, s.settings.Streams, source, func(e stream.Event) stream.Event { return e }, first...) // the client is gone
	stop()
	for range source { // lets events end
	}
}

// fetch passes on the events of a listener until ctx ends, or another connection has taken
// over. The listener of a revoked key ends with the revocation: the stream says so, as soon as the watch of the key does.
func (s webhookHandlers) fetch(ctx context.Context, l *listeners.Listener, keyPrefix string, out chan<- stream.Event) {
	ticker := time.NewTicker(s.settings.Streams.Interval)
	defer ticker.Stop()
	for {
		messages, err := s.fetchOnce(ctx, l)
		switch {
		case errors.Is(err, agenda.ErrFenced):
			if revoked, err := apikey.IsRevoked(ctx, s.db, keyPrefix); revoked || err != nil {
				<-ctx.Done()
			}
			return
		case ctx.Err() != nil:
			return
		case err != nil:
			s.logger.Warn("events of a listener cannot be read; they are read again", "error", err)
		}
		for _, m := range messages {
			select {
			case out <- webhookStreamed(m):
			case <-ctx.Done():
				return
			}
		}
		if len(messages) > 0 { // there may be more
			continue
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s webhookHandlers) fetchOnce(ctx context.Context, l *listeners.Listener) ([]listeners.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.API.RequestTimeout)
	defer cancel()
	return l.Fetch(ctx)
}

func webhookStreamed(m listeners.Message) stream.Event {
	data, _ := json.Marshal(struct { // cannot fail: the payload is from a json column
		ID      string          `json:"webhook_id"`
		Message json.RawMessage `json:"message"`
	}{m.ID.String(), m.Payload})
	return stream.Event{ID: m.Place, Name: "webhook", Data: data}
}

// eventsOf returns the filters of a comma-separated list, each one once.
func eventsOf(text *string) ([]string, error) {
	if text == nil {
		return []string{webhook.All}, nil
	}
	var events []string
	for one := range strings.SplitSeq(*text, ",") {
		one = strings.TrimSpace(one)
		if !webhook.Known(one) {
			return nil, fault.Invalid(fault.Field{Pointer: "?events", Detail: "must be types of events, such as purchase.completed, purchase.* or *, separated by commas"})
		}
		if !slices.Contains(events, one) {
			events = append(events, one)
		}
	}
	return events, nil
}
