package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/lease"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/tracing"
	"triprize/internal/webhook/sender"
)

// sent is what came of sending one event.
type sent struct {
	event  DueEvent
	at     time.Time
	took   time.Duration
	answer sender.Answer
}

// record is what is stored about it.
func (s sent) record(endpointID uuid.UUID) Sent {
	r := Sent{Attempt: Attempt{EventID: s.event.ID, EndpointID: endpointID, At: s.at, Duration: s.took}, Due: s.event.Due}
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
func (t *turn) send(ctx context.Context, due []DueEvent) (all []sent) {
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

func (t *turn) sendOne(ctx context.Context, event DueEvent) sent {
	at := time.Now()
	ctx, span := tracing.Continue(ctx, event.Traceparent, "webhook "+event.Type, "triprize.event_id", event.ID.String(), "triprize.endpoint_id", t.endpoint.ID.String())
	answer := t.sender.Send(ctx, t.endpoint.URL, sender.Message{ID: event.ID.String(), Body: event.Payload, Secrets: t.secrets,
		Traceparent: cmp.Or(span.Traceparent(), event.Traceparent)})
	span.Set("http.response.status_code", strconv.Itoa(answer.Status), tracing.Outcome, outcome(answer))
	span.End(answer.Err)
	t.metrics.attempts.WithLabelValues(outcome(answer)).Inc()
	return sent{event: event, at: at, took: time.Since(at), answer: answer}
}

func outcome(answer sender.Answer) string {
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
func (t *turn) render(ctx context.Context, due []DueEvent) error {
	var fresh []Event
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
	stored, err := StorePayloads(ctx, t.db, payloads)
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
func Message(e Event, document json.RawMessage) json.RawMessage {
	const envelope = 1 << 10
	if len(document) == 0 || len(document) > MaxPayloadBytes-envelope {
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

// row is what a secret is sealed for: it opens for its endpoint only, and for no draw.
func row(endpointID uuid.UUID) []byte { return append([]byte("webhook endpoint "), endpointID[:]...) }

// Seal seals a secret for an endpoint.
func Seal(keys keyring.Keyring, endpointID uuid.UUID, secret string) []byte {
	return keys.Seal([]byte(secret), row(endpointID))
}

// open opens a secret.
func openSecret(keys keyring.Keyring, s Secret) (string, error) {
	secret, err := keys.Open(s.Sealed, row(s.EndpointID))
	if err != nil {
		return "", fmt.Errorf("webhooks.Open(%s): %w", s.EndpointID, err)
	}
	return string(secret), nil
}

// Rotation is what RotateSecrets has done.
type Rotation struct {
	Checked  int         // secrets
	Resealed int         // sealed with the current key now, and with another one before
	Unopened []uuid.UUID // endpoints with a secret that no key opens; it is left as it is
}

// RotateSecrets seals the secrets of all endpoints with the current key of the ring, reading
// batch of them at a time. It may be repeated, and run beside deliveries.
func RotateSecrets(ctx context.Context, db postgres.DB, keys keyring.Keyring, batch int) (r Rotation, err error) {
	for after := uuid.Nil; ; {
		page, err := SecretsAfter(ctx, db, after, batch)
		if err != nil {
			return r, fmt.Errorf("webhooks.RotateSecrets: %w", err)
		}
		for _, s := range page {
			after = s.ID
			r.Checked++
			sealed, err := keys.Reseal(s.Sealed, row(s.EndpointID))
			if err != nil {
				r.Unopened = append(r.Unopened, s.EndpointID)
				continue
			}
			if string(sealed) == string(s.Sealed) {
				continue
			}
			done, err := Reseal(ctx, db, s.ID, s.Sealed, sealed)
			if err != nil {
				return r, fmt.Errorf("webhooks.RotateSecrets: %w", err)
			}
			if done {
				r.Resealed++
			}
		}
		if len(page) < batch {
			return r, nil
		}
	}
}

// challenged is the data of a challenge.
type challenged struct {
	ID        uuid.UUID `json:"id"`
	Challenge string    `json:"challenge"`
}

// verify asks the URL of an endpoint once whether it wants events. Its events wait until it has
// echoed the challenge, which only the message has: no API shows it, and no table.
func (t *turn) verify(ctx context.Context) error {
	answer, err := t.challenge(ctx)
	if err != nil {
		return err
	}
	if answer.Err != nil && ctx.Err() != nil {
		return nil //nolint:nilerr // cut off: as if it was never sent
	}
	var c Challenge
	if told := answer.Told(); told != "" {
		c = Challenge{Error: &told, Pause: max(pause(t.endpoint.Failures), asked(answer))}
	}
	t.hit("webhooks.challenged")
	ctx = context.WithoutCancel(ctx)
	var now Endpoint
	err = postgres.Persist(ctx, func() error {
		return postgres.InTx(ctx, t.db, func(tx pgx.Tx) (err error) {
			now, err = NoteChallenge(ctx, tx, t.endpoint, c)
			return err
		})
	})
	switch {
	case errors.Is(err, lease.ErrFenced): // it has another URL, or is disabled
		return nil
	case err != nil:
		return fmt.Errorf("webhooks.verify(%s): %w", t.endpoint.ID, err)
	}
	if c.Error != nil {
		t.logger.Info("a webhook endpoint has not echoed a challenge: no events are sent to it", "endpoint", now.ID, "client", now.Client, "error", answer.Text())
	}
	return nil
}

// challenge sends a challenge. A URL that the operator has named need not be asked.
func (t *turn) challenge(ctx context.Context) (sender.Answer, error) {
	if t.sender.Named(ctx, t.endpoint.URL) {
		return sender.Answer{Status: 200}, nil
	}
	challenge := sender.NewChallenge()
	data, err := json.Marshal(challenged{t.endpoint.ID, challenge})
	if err != nil {
		return sender.Answer{}, fault.At(err, "webhooks.challenge")
	}
	message := body(EndpointVerification, time.Now(), data)
	return t.sender.Challenge(ctx, t.endpoint.URL, sender.Message{ID: uuidv7.New().String(), Body: message, Secrets: t.secrets}, challenge), nil
}

// tell logs why a round has failed: an app sees less.
func (t *turn) tell(r Round, all []sent) {
	if r.Failed {
		t.logger.Info("a webhook endpoint takes nothing; it is tried again", "endpoint", t.endpoint.ID, "client", t.endpoint.Client, "error", all[0].answer.Text())
	}
}
