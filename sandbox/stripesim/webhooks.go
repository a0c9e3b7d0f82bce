package stripesim

import (
	"bytes"
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/stripe/stripe-go/v85/webhook"
)

// sending is what the journal keeps of how an event is sent.
type sending struct {
	Sendings int
	delivery
}

// outbound sends webhooks. At most inFlight are under way.
type outbound struct {
	mu     sync.Mutex
	queue  schedule[shipment]
	added  int64
	wakeup chan struct{}
	slots  chan struct{}
	under  sync.WaitGroup
	http   *http.Client
}

const (
	inFlight       = 16
	webhookTimeout = 10 * time.Second
	longestRetry   = time.Minute
)

func newOutbound() *outbound {
	return &outbound{
		wakeup: make(chan struct{}, 1), slots: make(chan struct{}, inFlight),
		http: &http.Client{Timeout: webhookTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: inFlight, MaxConnsPerHost: inFlight},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// enabled tells whether events of a type are sent.
func (s *Server) enabled(kind string) bool {
	all := s.settings.WebhookEvents
	return len(all) == 0 || slices.Contains(all, kind)
}

// enqueue decides when and how often an event is sent.
func (s *Server) enqueue(c *change, e *event, i *intent) {
	if s.settings.WebhookURL == "" || !s.enabled(e.Type) {
		return
	}
	mode := table[i.Last]
	how := sentOnce
	if mode != nil {
		how = mode.webhooks
	}
	lost, doubled, late := s.faults.webhook()
	e.Sendings, e.Next = 1, c.now.UnixMilli()
	switch {
	case how == sentNever || lost:
		e.Sendings, e.Next = 0, 0
		return
	case how == sentTwice || doubled:
		e.Sendings = 2
	case how == sentLate || late:
		e.Next = c.after(s.settings.Late)
	case how == sentReversed:
		i.Held = append(i.Held, e.ID)
		if i.Releases == 0 {
			i.Releases = c.after(s.settings.Reverse)
		}
		e.Next = i.Releases
		c.touch(i)
		return
	}
	for range e.Sendings {
		c.send = append(c.send, shipment{at: e.Next, events: []string{e.ID}})
	}
}

// release sends the events that were held back, the newest first.
func (c *change) release(i *intent) {
	events := i.Held
	i.Held, i.Releases = nil, 0
	c.touch(i)
	if len(events) > 0 {
		slices.Reverse(events)
		c.send = append(c.send, shipment{at: c.now.UnixMilli(), events: events})
	}
}

// resume puts the events in the queue that a journal has as not yet sent.
func (s *Server) resume() {
	held := make(map[string]bool)
	for _, i := range s.state.intents.list {
		for _, id := range i.Held {
			held[id] = true
		}
	}
	for _, e := range s.state.events.list {
		if !held[e.ID] {
			for range e.Sendings {
				s.outbound.add(0, shipment{at: e.Next, events: []string{e.ID}})
			}
		}
	}
}

// add puts shipments into the queue.
func (o *outbound) add(seq int64, all ...shipment) {
	if len(all) == 0 {
		return
	}
	o.mu.Lock()
	for _, one := range all {
		o.added++
		one.seq, one.order = seq, o.added
		heap.Push(&o.queue, one)
	}
	o.mu.Unlock()
	o.wake()
}

func (o *outbound) wake() {
	select {
	case o.wakeup <- struct{}{}:
	default:
	}
}

// deliver sends what is due until the server stops, and waits for what is under way.
func (s *Server) deliver(ctx context.Context) {
	o := s.outbound
	defer o.http.CloseIdleConnections()
	defer o.under.Wait()
	for {
		one, wait, due := o.next(s.now().UnixMilli())
		if !due {
			select {
			case <-ctx.Done():
				return
			case <-o.wakeup:
			case <-time.After(wait):
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case o.slots <- struct{}{}:
		}
		o.under.Go(func() {
			defer func() { <-o.slots }()
			for _, id := range one.events {
				s.sendEvent(ctx, one.seq, id)
			}
		})
	}
}

// next takes the next shipment that is due, or says how long nothing is.
func (o *outbound) next(now int64) (one shipment, wait time.Duration, due bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return one, time.Hour, false
	}
	if wait := o.queue[0].at - now; wait > 0 {
		return one, min(time.Duration(wait)*time.Millisecond, time.Hour), false
	}
	one, _ = heap.Pop(&o.queue).(shipment)
	return one, 0, true
}

// sendEvent sends an event once, and notes what became of it.
func (s *Server) sendEvent(ctx context.Context, seq int64, id string) {
	if s.journal.wait(seq) != nil {
		return
	}
	s.mu.Lock()
	e := s.state.events.by[id]
	var payload []byte
	if e != nil && e.Sendings > 0 {
		payload, _ = json.Marshal(e.render(apiVersion))
	}
	target, secret := s.settings.WebhookURL, s.settings.WebhookSecret
	s.mu.Unlock()
	if payload == nil {
		return
	}
	err := s.post(ctx, target, secret, payload)
	if ctx.Err() != nil {
		return // it stays as it is, for the next start
	}
	s.mutate("", "", "", func(c *change) {
		e := c.events.by[id]
		if e == nil || e.Sendings == 0 {
			return
		}
		e.Attempts++
		if err == nil {
			e.Sendings--
			s.counts.delivered++
		} else {
			s.counts.undelivered++
			s.settings.Logger.Info("a webhook was not taken", "event", e.ID, "type", e.Type, "attempt", e.Attempts, "error", err)
			e.Next = c.after(min(s.settings.Retry<<min(e.Attempts-1, 20), max(longestRetry, s.settings.Retry)))
			if c.unix()-e.Created > int64(webhookLife/time.Second) {
				e.Sendings = 0
			} else {
				c.send = append(c.send, shipment{at: e.Next, events: []string{id}})
			}
		}
		c.records = append(c.records, encode("delivery", id, sending{e.Sendings, e.delivery}))
	})
}

// post sends a signed payload and fails unless the answer is 2xx.
func (s *Server) post(ctx context.Context, target, secret string, payload []byte) error {
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: payload, Secret: secret, Timestamp: time.Now()})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(payload))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
	request.Header.Set("Stripe-Signature", signed.Header)
	response, err := s.outbound.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}

// shipment is events that are sent one after the other, at a moment.
type shipment struct {
	at     int64 // Unix milliseconds of the sandbox's clock
	order  int64 // of those of one moment, the first is sent first
	seq    int64 // of the journal: nothing is sent before it is on disk
	events []string
}

func (s shipment) due() (at, order int64) { return s.at, s.order }
