package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/store/agenda"
	"triprize/internal/store/webhook"
)

// Renderer makes what events show: the resource of each as GET shows it to an app now. It
// leaves out events whose resource is not there any more.
type Renderer interface {
	Render(ctx context.Context, events []webhook.Event) (map[uuid.UUID]json.RawMessage, error)
}

// Settings bound what a Deliverer does.
type Settings struct {
	Concurrency int           // requests to one endpoint at a time
	Timeout     time.Duration // of a request
	GiveUpAfter time.Duration // of nothing but failures an endpoint is disabled
	Turn        time.Duration // after it each sender of a turn ends its request, and others have theirs
}

// lease is for how long a worker has an endpoint: requests begin in its first part, and
// have ended before its last one.
func (s Settings) lease() time.Duration { return 2*s.Timeout + leaseReserve }

const (
	leaseReserve = 30 * time.Second // to record what was sent, also when the database is slow
	perRound     = 16               // events of a round, for each request at a time
)

// Deliverer delivers events.
type Deliverer struct {
	db       postgres.Pool
	keys     keyring.Keyring
	sender   *webhookhttp.Sender
	renderer Renderer
	settings Settings
	logger   *slog.Logger
	metrics  *metrics
}

// NewDeliverer returns a Deliverer. keys open the secrets of endpoints.
func NewDeliverer(db postgres.Pool, keys keyring.Keyring, sender *webhookhttp.Sender, renderer Renderer, settings Settings, logger *slog.Logger,
	registry prometheus.Registerer) *Deliverer {
	return &Deliverer{db: db, keys: keys, sender: sender, renderer: renderer, settings: settings, logger: logger, metrics: newMetrics(registry)}
}

// Run has a turn with an endpoint, unless somebody else has it or it is not open. When ctx ends
// it begins nothing more, and what is under way is as if it was never sent. An error is a fault
// of the database, or of the secrets of the endpoint: its events stay due, and the lease ends
// by itself.
func (d *Deliverer) Run(ctx context.Context, item agenda.Item) error {
	began := time.Now()
	e, ok, err := webhook.Claim(ctx, d.db, item, d.settings.lease())
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
		case errors.Is(err, agenda.ErrFenced): // somebody else goes on
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
	endpoint webhook.Endpoint
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
	due, err := webhook.DueEvents(ctx, t.db, t.endpoint.ID, size)
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
func (t *turn) record(ctx context.Context, r webhook.Round) error {
	renewed := time.Now()
	var now webhook.Endpoint
	err := postgres.Persist(ctx, func() error {
		return postgres.InTx(ctx, t.db, func(tx pgx.Tx) (err error) {
			now, err = webhook.Record(ctx, tx, t.endpoint, r, t.settings.GiveUpAfter)
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
	sealed, err := webhook.Secrets(ctx, d.db, id)
	if err != nil {
		return nil, err
	}
	if len(sealed) == 0 {
		return nil, fmt.Errorf("webhooks.Run(%s): the endpoint has no valid secret", id)
	}
	secrets := make([]string, len(sealed))
	for i, s := range sealed {
		if secrets[i], err = open(d.keys, s); err != nil {
			return nil, err
		}
	}
	return secrets, nil
}
