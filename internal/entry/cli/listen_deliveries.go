package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"time"

	"triprize/internal/platform/webhookhttp"
)

// mostWaiting is how many events are tried again beside the stream.
const mostWaiting = 100

// listenState is what a run of listen leaves to the next one.
type listenState struct {
	Place  string `json:"place"` // up to here the receiver has taken all events of the stream
	Secret string `json:"secret"`
}

// deliveries knows which events of the stream the receiver has taken. The server forgets what is
// before the place that listen comes back with: so the place stays before the oldest that was not taken.
type deliveries struct {
	file    string // of the state; empty: none
	waiting chan struct{}
	retries sync.WaitGroup

	mu    sync.Mutex
	out   io.Writer
	state listenState
	order []arrival            // after the place, as they have come on this connection
	again map[string]*delivery // known from earlier connections: they come again
}

// arrival is an event at its place in the stream.
type arrival struct {
	place string
	id    string // empty: it is no event
	*delivery
}

type delivery struct{ taken bool }

// begin is the begin of a connection. It returns the place to go on from.
func (d *deliveries) begin() (place string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := make(map[string]*delivery)
	maps.Copy(known, d.again)
	for _, a := range d.order {
		if a.id != "" {
			known[a.id] = a.delivery
		}
	}
	d.again, d.order = known, nil
	return d.state.Place
}

// forget forgets the place: the server knows it no more.
func (d *deliveries) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state.Place, d.again = "", nil
}

// arrived notes an event. It returns nil when it is under way, or was taken, since an earlier connection.
func (d *deliveries) arrived(place, id string) *delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.again[id]; known != nil {
		delete(d.again, id)
		d.order = append(d.order, arrival{place, id, known})
		return nil
	}
	fresh := new(delivery)
	d.order = append(d.order, arrival{place, id, fresh})
	return fresh
}

// passed notes a place without an event; empty: it is none.
func (d *deliveries) passed(place string) {
	if place != "" {
		d.mu.Lock()
		d.order = append(d.order, arrival{place, "", &delivery{taken: true}})
		d.mu.Unlock()
	}
	d.taken(nil)
}

// taken notes that an event was taken (nil: none), and writes how far all are.
func (d *deliveries) taken(one *delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one != nil {
		one.taken = true
	}
	before := d.state.Place
	for len(d.order) > 0 && d.order[0].taken {
		d.state.Place, d.order = d.order[0].place, d.order[1:]
	}
	if d.file == "" || d.state.Place == before {
		return
	}
	if err := writeJSON(d.file, d.state); err != nil {
		say(d.out, "--resume: %v", err)
	}
}

func (d *deliveries) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	say(d.out, format, args...)
}

// take hands an event to the receiver. One that it does not take is tried again beside those behind
// it; when many are, it waits.
func (l *listening) take(ctx context.Context, place, name, data string) error {
	if name != "webhook" {
		l.passed(place)
		return nil
	}
	var event struct {
		ID      string          `json:"webhook_id"`
		Message json.RawMessage `json:"message"`
	}
	if err := json.Unmarshal([]byte(data), &event); err != nil {
		return fmt.Errorf("an event of the stream: %w", err)
	}
	d := l.arrived(place, event.ID)
	if d == nil || l.forward(ctx, event.ID, event.Message, listenPause) {
		l.taken(d)
		return ctx.Err()
	}
	select {
	case l.waiting <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.retries.Go(func() {
		defer func() { <-l.waiting }()
		for wait := listenPause; pause(ctx, wait) == nil; {
			wait = min(2*wait, forwardLongest)
			if l.forward(ctx, event.ID, event.Message, wait) {
				l.taken(d)
				return
			}
		}
	})
	return nil
}

// forward sends an event once, and reports whether the receiver has taken it; again is when the next
// attempt would be.
func (l *listening) forward(ctx context.Context, id string, message json.RawMessage, again time.Duration) bool {
	var about struct{ Type string }
	_ = json.Unmarshal(message, &about) // it is for the lines below only
	answer := l.sender.Send(ctx, l.target, webhookhttp.Message{ID: id, Body: message, Secrets: []string{l.state.Secret}})
	switch {
	case ctx.Err() != nil:
	case answer.Arrived():
		l.say("%s %s %s %d", time.Now().Format(time.TimeOnly), id, about.Type, answer.Status)
	default:
		l.say("%s %s %s %s; again in %s", time.Now().Format(time.TimeOnly), id, about.Type, answer.Text(), again)
	}
	return answer.Arrived() && ctx.Err() == nil
}

// writeJSON replaces a file in one step; only its owner can read it.
func writeJSON(file string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}
