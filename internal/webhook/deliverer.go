package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/lease"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
	"triprize/internal/webhook/sender"
)

// Renderer makes what events show: the resource of each as GET shows it to an app now. It
// leaves out events whose resource is not there any more.
type Renderer interface {
	Render(ctx context.Context, events []Event) (map[uuid.UUID]json.RawMessage, error)
}

// Settings bound what a Deliverer does.
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
			return fmt.Errorf("webhooks.Run(%s): %w", item.ID, err)
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
	for _, s := range all {
		r.Sent = append(r.Sent, s.record(t.endpoint.ID))
	}
	t.tell(r, all)
	return more, t.record(context.WithoutCancel(ctx), r)
}

// record stores what came of a round.
func (t *turn) record(ctx context.Context, r Round) error {
	renewed := time.Now()
	var now Endpoint
	err := postgres.Persist(ctx, func() error {
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
		return nil, fmt.Errorf("webhooks.Run(%s): the endpoint has no valid secret", id)
	}
	secrets := make([]string, len(sealed))
	for i, s := range sealed {
		if secrets[i], err = openSecret(d.keys, s); err != nil {
			return nil, err
		}
	}
	return secrets, nil
}

// Schedule is how long a delivery waits after each attempt in vain. After the last of them
// it is tried once more, and then it has failed.
var Schedule = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
	2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour}

const (
	longestPause      = time.Hour // of an endpoint, so that it hears of everything within an hour of its return
	longestRetryAfter = 24 * time.Hour
	jitterPart        = 10 // waits are longer by up to a tenth, so that not all come back at once
	slowAfter         = 2 * time.Second
)

// retry returns when a delivery is tried again that was tried before times and once more;
// nil: never.
func retry(before int, answer sender.Answer) *time.Duration {
	if before >= len(Schedule) {
		return nil
	}
	wait := max(jittered(Schedule[before]), asked(answer))
	return &wait
}

// pause is how long an endpoint rests that has failed before times in a row, and once more.
func pause(before int) time.Duration {
	return jittered(min(Schedule[min(before, len(Schedule)-1)], longestPause))
}

func asked(answer sender.Answer) time.Duration {
	return min(answer.RetryAfter, longestRetryAfter)
}

func jittered(d time.Duration) time.Duration {
	return d + rand.N(d/jitterPart) //nolint:gosec // it spreads load and keeps no secret
}

// verdict says what becomes of an endpoint after a round. Its failures are those before it.
func verdict(failures int, sent []sent) (r Round) {
	unwell := false
	for _, s := range sent {
		r.Arrived = r.Arrived || s.answer.Arrived()
		r.Gone = r.Gone || s.answer.Gone()
		r.Slow = r.Slow || s.took >= slowAfter
		if s.answer.Unwell() {
			unwell = true
			r.Pause = max(r.Pause, asked(s.answer))
		}
	}
	r.Failed = !r.Arrived && len(sent) > 0 && (unwell || len(sent) > 1 || failures > 0) // one event alone may be one that the receiver cannot take
	if r.Failed {
		r.Slow = true
		r.Pause = max(r.Pause, pause(failures))
	}
	return r
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
