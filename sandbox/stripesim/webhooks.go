package stripesim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v85/webhook"
)

const (
	inFlight     = 16 // webhooks
	longestRetry = time.Minute
)

var webhookTimeout = 10 * time.Second // tests wait longer

func newWebhookClient() *http.Client {
	return &http.Client{Timeout: webhookTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: inFlight, MaxConnsPerHost: inFlight},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// enqueue decides when and how often an event of a payment is sent.
func (c *change) enqueue(e *event, i *intent) {
	s := c.server
	if s.settings.WebhookURL == "" || len(s.settings.WebhookEvents) > 0 && !slices.Contains(s.settings.WebhookEvents, e.Type) {
		return
	}
	how := sentOnce
	if m := table[i.Last]; m != nil {
		how = m.webhooks
	}
	lost, doubled, late := s.chance(s.faults.WebhookLost), s.chance(s.faults.WebhookTwice), s.chance(s.faults.WebhookLate)
	e.Sendings, e.Next = 1, c.now.UnixMilli()
	switch {
	case how == sentNever || lost:
		e.Sendings, e.Next = 0, 0
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
		c.send = append(c.send, alarm{at: e.Next, events: []string{e.ID}})
	}
}

// release sends the events that were held back, the newest first.
func (c *change) release(i *intent) {
	slices.Reverse(i.Held)
	c.send = append(c.send, alarm{at: c.now.UnixMilli(), events: i.Held})
	i.Held, i.Releases = nil, 0
	c.touch(i)
}

// send sends events one after the other.
func (s *Server) send(events []string) {
	s.owned.Go(func() {
		select {
		case <-s.closed.Done():
			return
		case s.senders <- struct{}{}:
		}
		defer func() { <-s.senders }()
		for _, id := range events {
			s.sendEvent(s.closed, id)
		}
	})
}

// sendEvent sends an event once, and notes what became of it.
func (s *Server) sendEvent(ctx context.Context, id string) {
	s.mu.Lock()
	e := find[*event](s.state, id)
	var payload []byte
	if e != nil && e.Sendings > 0 {
		payload = encode(e.render(0))
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
	_ = s.mutate(itself, func(c *change) { // the next request is answered with the error
		e := find[*event](c.state, id)
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
				c.send = append(c.send, alarm{at: e.Next, events: []string{id}})
			}
		}
		c.records = append(c.records, record{e.kind(), id, encode(e.delivery)})
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
	response, err := s.client.Do(request)
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
