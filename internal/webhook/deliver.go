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

// Renderer makes what events show: the resource of each as GET shows it to an app now. It
// leaves out events whose resource is not there any more.
type Renderer interface {
	Render(ctx context.Context, events []Event) (map[uuid.UUID]json.RawMessage, error)
}

// DelivererSettings bound what a Deliverer does.
type DelivererSettings struct {
	Concurrency int           // requests to one endpoint at a time
	Timeout     time.Duration // of a request
	GiveUpAfter time.Duration // of nothing but failures an endpoint is disabled
	Turn        time.Duration // after it each sender of a turn ends its request, and others have theirs
}

// lease is for how long a worker has an endpoint: requests begin in its first part, and
// have ended before its last one.
func (s DelivererSettings) lease() time.Duration { return 2*s.Timeout + leaseReserve }

const (
	leaseReserve = 30 * time.Second // to record what was sent, also when the database is slow
	perRound     = 16               // events of a round, for each request at a time
)

// Deliverer delivers events.
type Deliverer struct {
	db       postgres.Pool
	keys     keyring.Keyring
	sender   *sender.Sender
	renderer Renderer
	settings DelivererSettings
	logger   *slog.Logger
	metrics  *metrics
}

// NewDeliverer returns a Deliverer. keys open the secrets of endpoints.
func NewDeliverer(db postgres.Pool, keys keyring.Keyring, sender *sender.Sender, renderer Renderer, settings DelivererSettings, logger *slog.Logger,
	registry prometheus.Registerer) *Deliverer {
	return &Deliverer{db: db, keys: keys, sender: sender, renderer: renderer, settings: settings, logger: logger, metrics: newMetrics(registry)}
}

// Run has a turn with an endpoint, unless somebody else has it or it is not open. When ctx ends
// it begins nothing more, and what is under way is as if it was never sent. An error is a fault
// of the database, or of the secrets of the endpoint: its events stay due, and the lease ends
// by itself.
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
	t := &turn{Deliverer: d, endpoint: e, secrets: secrets, leased: began, over: began.Add(d.settings.Turn)}
	if e.VerifiedAt == nil {
		return t.verify(ctx)
	}
	for {
		more, err := t.round(ctx)
		switch {
		case errors.Is(err, lease.ErrFenced): // somebody else goes on
			return nil
		case err != nil:
			return fmt.Errorf("webhook.Run(%s): %w", item.ID, err)
		case !more:
			return nil
		}
	}
}

// turn is one turn with an endpoint that this worker has claimed.
type turn struct {
	*Deliverer
	endpoint Endpoint
	secrets  []string
	leased   time.Time // when the lease was begun or renewed, or a moment before
	over     time.Time // see Settings.Turn
}

// round sends once what is due. The lease is given back when nothing is due any more, the
// endpoint is paused or disabled, or the turn is over.
func (t *turn) round(ctx context.Context) (more bool, err error) {
	size := t.settings.Concurrency * perRound
	if t.endpoint.Failures > 0 {
		size = 1 // until something arrives
	}
	due, err := DueEvents(ctx, t.db, t.endpoint.ID, size)
	if err != nil {
		return false, err
	}
	if err := t.render(ctx, due); err != nil {
		return false, err
	}
	all := t.send(ctx, due)
	t.hit("webhooks.sent")
	r := verdict(t.endpoint.Failures, all)
	if len(all) == 0 {
		r.Slow = t.endpoint.Slow
	}
	more = (len(due) == size || len(all) < len(due)) && time.Now().Before(t.over) && r.Pause == 0 && !r.Gone && ctx.Err() == nil
	if more {
		r.Keep = t.settings.lease()
	}
	r.Sent = all
	t.tell(r)
	return more, t.record(context.WithoutCancel(ctx), r)
}

// record stores what came of a round.
func (t *turn) record(ctx context.Context, r Round) error {
	renewed := time.Now()
	var now Endpoint
	err := postgres.RetryLocked(ctx, func() error {
		return postgres.InTx(ctx, t.db, func(tx pgx.Tx) (err error) {
			now, err = Record(ctx, tx, t.endpoint, r, t.settings.GiveUpAfter)
			return err
		})
	})
	if err != nil {
		return err
	}
	t.endpoint, t.leased = now, renewed
	if now.DisabledAt != nil && now.DisabledReason != nil {
		t.metrics.disabled.WithLabelValues(string(*now.DisabledReason)).Inc()
		t.logger.Warn("a webhook endpoint is disabled: its client hears of nothing until it is enabled again",
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
		payloads[e.ID] = message(e, documents[e.ID])
	}
	stored, err := storePayloads(ctx, t.db, payloads)
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
// of the lease is over, ctx has ended, or the endpoint is unwell: a receiver that hangs costs
// one timeout. When the turn is over each sender ends with its first request. It leaves out
// what was cut off because ctx has ended.
func (t *turn) send(ctx context.Context, due []DueEvent) (all []Sent) {
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

func (t *turn) sendOne(ctx context.Context, event DueEvent) Sent {
	at := time.Now()
	ctx, span := tracing.Continue(ctx, event.Traceparent, "webhook "+event.Type, "triprize.event_id", event.ID.String(), "triprize.endpoint_id", t.endpoint.ID.String())
	answer := t.sender.Send(ctx, t.endpoint.URL, sender.Message{ID: event.ID.String(), Body: event.Payload, Secrets: t.secrets,
		Traceparent: cmp.Or(span.Traceparent(), event.Traceparent)})
	span.Set("http.response.status_code", strconv.Itoa(answer.Status), tracing.Outcome, outcome(answer))
	span.End(answer.Err)
	t.metrics.attempts.WithLabelValues(outcome(answer)).Inc()
	s := Sent{Attempt: Attempt{EventID: event.ID, EndpointID: t.endpoint.ID, At: at, Duration: time.Since(at),
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

// tell logs why a round has failed: an app sees less.
func (t *turn) tell(r Round) {
	if r.Failed {
		t.logger.Info("a webhook endpoint takes nothing; it is tried again", "endpoint", t.endpoint.ID, "client", t.endpoint.Client, "error", r.Sent[0].answer.Text())
	}
}

func (t *turn) hit(name string) {
	failpoint.Hit(name, func() []string { return []string{t.endpoint.ID.String()} })
}

type metrics struct {
	attempts *prometheus.CounterVec // by outcome
	disabled *prometheus.CounterVec // by reason
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_webhook_attempts_total",
			Help: "Messages sent to endpoints of apps, by outcome: delivered, refused (by the answer), unanswered.",
		}, []string{"outcome"}),
		disabled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_webhook_endpoints_disabled_total",
			Help: "Endpoints that were disabled because of their answers, by reason: gone, failing. Their apps hear of nothing any more.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.attempts, m.disabled)
	telemetry.Expect(m.attempts, "delivered", "refused", "unanswered")
	telemetry.Expect(m.disabled, Gone, Failing)
	return m
}
