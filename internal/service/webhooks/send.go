package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/tracing"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/store/webhook"
)

// sent is what came of sending one event.
type sent struct {
	event  webhook.DueEvent
	at     time.Time
	took   time.Duration
	answer webhookhttp.Answer
}

// record is what is stored about it.
func (s sent) record(endpointID uuid.UUID) webhook.Sent {
	r := webhook.Sent{Attempt: webhook.Attempt{EventID: s.event.ID, EndpointID: endpointID, At: s.at, Duration: s.took}, Due: s.event.Due}
	if s.answer.Status != 0 {
		r.Status = &s.answer.Status
	}
	if text := s.answer.Text(); text != "" {
		r.Error, r.Retry = &text, retry(s.event.Attempts, s.answer)
	}
	if s.answer.Failure != "" {
		r.Failure = &s.answer.Failure
	}
	return r
}

// send sends events, a bounded number at a time. It begins nothing more when the first part
// of the lease is over, ctx has ended, or the endpoint is unwell: a receiver that hangs costs
// one timeout. When the turn is over each sender ends with its first request. It leaves out
// what was cut off because ctx has ended.
func (t *turn) send(ctx context.Context, due []webhook.DueEvent) (all []sent) {
	stop := t.leased.Add(t.settings.Timeout)
	var next atomic.Int64
	var unwell atomic.Bool
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range min(t.settings.Concurrency, len(due)) {
		wg.Go(func() {
			for first := true; first || time.Now().Before(t.over); first = false {
				i := int(next.Add(1)) - 1
				if i >= len(due) || unwell.Load() || ctx.Err() != nil || time.Now().After(stop) {
					return
				}
				s := t.sendOne(ctx, due[i])
				if s.answer.Err != nil && ctx.Err() != nil {
					return
				}
				if s.answer.Unwell() || s.answer.Gone() {
					unwell.Store(true)
				}
				mu.Lock()
				all = append(all, s)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all
}

func (t *turn) sendOne(ctx context.Context, event webhook.DueEvent) sent {
	at := time.Now()
	ctx, span := tracing.Continue(ctx, event.Traceparent, "webhook "+event.Type, "triprize.event_id", event.ID.String(), "triprize.endpoint_id", t.endpoint.ID.String())
	answer := t.sender.Send(ctx, t.endpoint.URL, webhookhttp.Message{ID: event.ID.String(), Body: event.Payload, Secrets: t.secrets,
		Traceparent: cmp.Or(span.Traceparent(), event.Traceparent)})
	span.Set("http.response.status_code", strconv.Itoa(answer.Status), tracing.Outcome, outcome(answer))
	span.End(answer.Err)
	t.metrics.attempts.WithLabelValues(outcome(answer)).Inc()
	return sent{event: event, at: at, took: time.Since(at), answer: answer}
}

func outcome(answer webhookhttp.Answer) string {
	switch {
	case answer.Arrived():
		return "delivered"
	case answer.Err != nil:
		return "unanswered"
	}
	return "refused"
}

// render makes the messages of events that have none yet, and stores them before they are
// sent: all attempts, to all endpoints, send the same bytes.
func (t *turn) render(ctx context.Context, due []webhook.DueEvent) error {
	var fresh []webhook.Event
	for _, d := range due {
		if d.Payload == nil {
			fresh = append(fresh, d.Event)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	documents, err := t.renderer.Render(ctx, fresh)
	if err != nil {
		return err
	}
	payloads := make(map[uuid.UUID]json.RawMessage, len(fresh))
	for _, e := range fresh {
		payloads[e.ID] = Message(e, documents[e.ID])
	}
	stored, err := webhook.StorePayloads(ctx, t.db, payloads)
	if err != nil {
		return err
	}
	for i := range due {
		if payload, ok := stored[due[i].ID]; ok {
			due[i].Payload = payload
		}
		if due[i].Payload == nil {
			return fmt.Errorf("the message of event %s was not stored", due[i].ID)
		}
	}
	return nil
}

// Message returns the body of an event's messages. A document that is too large, or whose
// resource is not there any more, is {id, truncated}.
func Message(e webhook.Event, document json.RawMessage) json.RawMessage {
	const envelope = 1 << 10
	if len(document) == 0 || len(document) > webhook.MaxPayloadBytes-envelope {
		document = json.RawMessage(fmt.Sprintf(`{"id":%q,"truncated":true}`, e.Subject))
	}
	return body(e.Type, e.At, document)
}

// body is what a message says. It is put together by hand: json.Marshal would read all of the data again.
func body(kind string, at time.Time, data json.RawMessage) json.RawMessage {
	b := make([]byte, 0, len(data)+len(kind)+80)
	b = append(append(b, `{"type":"`...), kind...) // letters and . _ - only
	b = at.UTC().AppendFormat(append(b, `","timestamp":"`...), time.RFC3339Nano)
	return append(append(append(b, `","data":`...), data...), '}')
}

func (t *turn) hit(name string) {
	failpoint.Hit(name, func() []string { return []string{t.endpoint.ID.String()} })
}
