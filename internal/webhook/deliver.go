package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/lease"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/tracing"
	"triprize/internal/webhook/sender"
)

// Renderer renders the resource of each event as GET shows it to an app now. It leaves out
// events whose resource does not exist any more.
type Renderer interface {
	Render(ctx context.Context, events []Event) (map[uuid.UUID]json.RawMessage, error)
}

// DelivererSettings bound what a Deliverer does.
type DelivererSettings struct {
	Concurrency int           // requests to one endpoint at a time
	Timeout     time.Duration // of a request
	GiveUpAfter time.Duration // an endpoint is disabled that has only failed for so long
	RunTime     time.Duration // of a delivery run: afterwards each sender ends its request, and other endpoints are served
}

// lease is for how long a worker has an endpoint: requests begin in its first part, and
// have ended before its last one.
func (s DelivererSettings) lease() time.Duration { return 2*s.Timeout + leaseReserve }

const (
	leaseReserve = 30 * time.Second // to record what was sent, also when the database is slow
	perRequest   = 16               // events of a batch, for each request at a time
)

// Deliverer delivers events.
type Deliverer struct {
	db       postgres.Pool
	keys     keyring.Keyring
	sender   *sender.Sender
	renderer Renderer
	settings DelivererSettings
	logger   *slog.Logger
	attempts *prometheus.CounterVec // by outcome
}

// NewDeliverer returns a Deliverer. keys open the secrets of endpoints.
func NewDeliverer(db postgres.Pool, keys keyring.Keyring, sender *sender.Sender, renderer Renderer, settings DelivererSettings, logger *slog.Logger,
	registry prometheus.Registerer) *Deliverer {
	return &Deliverer{db: db, keys: keys, sender: sender, renderer: renderer, settings: settings, logger: logger, attempts: newAttempts(registry)}
}

// Run claims an endpoint and sends what is due, unless another worker has it or it is not open.
// When ctx ends it begins nothing more, and what is being sent counts as never sent. An error is a
// fault of the database, or of the secrets of the endpoint: its events stay due, and the lease
// expires.
func (d *Deliverer) Run(ctx context.Context, item lease.Item) error {
	began := time.Now()
	e, ok, err := Claim(ctx, d.db, item, d.settings.lease())
	if err != nil || !ok {
		return err
	}
	secrets, err := d.secrets(ctx, item.ID)
	if err != nil {
		return err
	}
	r := &run{Deliverer: d, endpoint: e, secrets: secrets, leased: began, over: began.Add(d.settings.RunTime)}
	if e.VerifiedAt == nil {
		return r.verify(ctx)
	}
	for {
		more, err := r.batch(ctx)
		switch {
		case errors.Is(err, lease.ErrFenced): // another worker continues
			return nil
		case err != nil:
			return fmt.Errorf("webhook.Run(%s): %w", item.ID, err)
		case !more:
			return nil
		}
	}
}

// run is one delivery run for an endpoint that this worker has claimed.
type run struct {
	*Deliverer
	endpoint Endpoint
	secrets  []string
	leased   time.Time // when the lease was begun or renewed, or a moment before
	over     time.Time // see DelivererSettings.RunTime
}

// batch sends once what is due. It releases the lease when nothing is due any more, the endpoint
// is paused or disabled, or the run's time is over.
func (d *run) batch(ctx context.Context) (more bool, err error) {
	size := d.settings.Concurrency * perRequest
	if d.endpoint.Failures > 0 {
		size = 1 // until something arrives
	}
	due, err := DueEvents(ctx, d.db, d.endpoint.ID, size)
	if err != nil {
		return false, err
	}
	if err := d.render(ctx, due); err != nil {
		return false, err
	}
	all := d.send(ctx, due)
	d.hit("webhooks.sent")
	r := verdict(d.endpoint.Failures, all)
	if len(all) == 0 {
		r.Slow = d.endpoint.Slow
	}
	more = (len(due) == size || len(all) < len(due)) && time.Now().Before(d.over) && r.Pause == 0 && !r.Gone && ctx.Err() == nil
	if more {
		r.Extend = d.settings.lease()
	}
	r.Sent = all
	if r.Failed { // an app sees less
		d.logger.Info("a webhook endpoint takes nothing; it is tried again", "endpoint", d.endpoint.ID, "client", d.endpoint.Client, "error", r.Sent[0].answer.Text())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.settings.lease()) // later it is fenced
	defer cancel()
	return more, d.record(ctx, r)
}

// record stores the results of a batch.
func (d *run) record(ctx context.Context, r Round) error {
	renewed := time.Now()
	var now Endpoint
	err := postgres.RetryLocked(ctx, func() error {
		return postgres.InTx(ctx, d.db, func(tx pgx.Tx) (err error) {
			now, err = Record(ctx, tx, d.endpoint, r, d.settings.GiveUpAfter)
			return err
		})
	})
	if err != nil {
		return err
	}
	d.endpoint, d.leased = now, renewed
	if now.DisabledAt != nil && now.DisabledReason != nil {
		d.logger.Warn("a webhook endpoint is disabled: its client hears of nothing until it is enabled again",
			"endpoint", now.ID, "client", now.Client, "reason", *now.DisabledReason)
	}
	return nil
}

// secrets opens the secrets of an endpoint.
func (d *Deliverer) secrets(ctx context.Context, id uuid.UUID) ([]string, error) {
	sealed, err := Secrets(ctx, d.db, id)
	if err != nil {
		return nil, err
	}
	if len(sealed) == 0 {
		return nil, fmt.Errorf("webhook.Run(%s): the endpoint has no valid secret", id)
	}
	secrets := make([]string, len(sealed))
	for i, s := range sealed {
		if secrets[i], err = openSecret(d.keys, s); err != nil {
			return nil, err
		}
	}
	return secrets, nil
}

// render makes the messages of events that have none yet, and stores them before they are
// sent: all attempts, to all endpoints, send the same bytes.
func (d *run) render(ctx context.Context, due []DueEvent) error {
	var fresh []Event
	for _, d := range due {
		if d.Payload == nil {
			fresh = append(fresh, d.Event)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	documents, err := d.renderer.Render(ctx, fresh)
	if err != nil {
		return err
	}
	payloads := make(map[uuid.UUID]json.RawMessage, len(fresh))
	for _, e := range fresh {
		payloads[e.ID] = message(e, documents[e.ID])
	}
	stored, err := storePayloads(ctx, d.db, payloads)
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

// send sends events, a bounded number at a time. It begins nothing more when the first part
// of the lease is over, ctx has ended, or the endpoint is unavailable: a receiver that hangs costs
// one timeout. When the run's time is over each sender ends with its first request. It leaves out
// what was cut off because ctx has ended.
func (d *run) send(ctx context.Context, due []DueEvent) (all []AttemptResult) {
	stop := d.leased.Add(d.settings.Timeout)
	var next atomic.Int64
	var unavailable atomic.Bool
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range min(d.settings.Concurrency, len(due)) {
		wg.Go(func() {
			for first := true; first || time.Now().Before(d.over); first = false {
				i := int(next.Add(1)) - 1
				if i >= len(due) || unavailable.Load() || ctx.Err() != nil || time.Now().After(stop) {
					return
				}
				s := d.sendOne(ctx, due[i])
				if s.answer.Err != nil && ctx.Err() != nil {
					return
				}
				if s.answer.Unavailable() || s.answer.Gone() {
					unavailable.Store(true)
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

func (d *run) sendOne(ctx context.Context, event DueEvent) AttemptResult {
	at := time.Now()
	ctx, span := tracing.Continue(ctx, event.Traceparent, "webhook "+event.Type, "triprize.event_id", event.ID.String(), "triprize.endpoint_id", d.endpoint.ID.String())
	answer := d.sender.Send(ctx, d.endpoint.URL, sender.Message{ID: event.ID.String(), Body: event.Payload, Secrets: d.secrets,
		Traceparent: cmp.Or(span.Traceparent(), event.Traceparent)})
	span.Set("http.response.status_code", strconv.Itoa(answer.Status), tracing.Outcome, outcome(answer))
	span.End(answer.Err)
	d.attempts.WithLabelValues(outcome(answer)).Inc()
	s := AttemptResult{Attempt: Attempt{EventID: event.ID, At: at, Duration: time.Since(at),
		Status: postgres.Nullable(answer.Status), Failure: postgres.Nullable(answer.Failure)}, Due: event.Due, answer: answer}
	if text := answer.Text(); text != "" {
		s.Error, s.Retry = &text, retry(event.Attempts, answer)
	}
	return s
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

func (d *run) hit(name string) {
	failpoint.Hit(name, func() []string { return []string{d.endpoint.ID.String()} })
}

func newAttempts(registry prometheus.Registerer) *prometheus.CounterVec {
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_webhook_attempts_total",
		Help: "Messages sent to endpoints of apps, by outcome: delivered, refused (by the answer), unanswered.",
	}, []string{"outcome"})
	registry.MustRegister(attempts)
	telemetry.Expect(attempts, "delivered", "refused", "unanswered")
	return attempts
}
