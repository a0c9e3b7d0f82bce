package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/campaign"
	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/redisx"
)

// average is the mean latency of calls that one caller makes one after the other, in ms.
const average = "average ms"

// drawStep is one step of a draw, alone: a transaction in each of many campaigns, one after the
// other, as the documents measure it.
type drawStep struct {
	from campaign.State // of the campaigns
	step func(ctx context.Context, tx pgx.Tx, id uuid.UUID) error
}

// stepsPerSecond is more than one connection does.
const stepsPerSecond = 6_000

func (d drawStep) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	campaigns := int((warmUp(measured) + measured).Seconds() * stepsPerSecond)
	o := offer{"template_step_" + string(d.from), nil, func(ctx context.Context, db *pgxpool.Pool) error {
		_, err := db.Exec(ctx, `
			INSERT INTO campaigns (id, name, base_length, currency, state, policies, positions_total, positions_sold, published_at, draw_started_at)
			SELECT gen_random_uuid(), 'Campaign ' || i, 20, 'JPY', $1, '{}', 210, 210, now(), CASE $1 WHEN 'drawing' THEN now() END
			FROM generate_series(1, $2::int) AS i`, d.from, campaigns)
		return err
	}}
	return s.onSale(ctx, o, func(sys *system) (r result, err error) {
		w, left := newWindow(sys.meter()), sys.campaigns
		r, err = w.repeat(ctx, measured, 1, func(int) caller {
			return func() (bool, error) {
				if len(left) == 0 {
					return false, errors.New("the machine has done every campaign")
				}
				id := left[0]
				left = left[1:]
				return true, postgres.InTx(ctx, sys.pool, func(tx pgx.Tx) error { return d.step(ctx, tx, id) })
			}
		})
		r.note(average, divide(1000, r.figures[rate]))
		return r, err
	})
}

// beginDraw is the transition of a sold-out campaign under its lock. In a sale it is a statement of the last batch.
func beginDraw(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	if err := campaign.Lock(ctx, tx, id); err != nil {
		return err
	}
	return campaign.StartDraw(ctx, tx, id)
}

// claimDraw takes the execution lock of a draw.
func claimDraw(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, ok, err := campaign.Claim(ctx, tx, id, "bench", time.Hour)
	if err == nil && !ok {
		err = errors.New("the execution lock of a campaign was not free")
	}
	return err
}

// lockStep takes a free lock in Redis and gives it back, one after the other; by majority where there are several servers.
type lockStep struct{ redis string }

func (l lockStep) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.with(ctx, devstack.Options{Redis: l.redis}, func(s *setup) (r result, err error) {
		settings, err := config.LoadFrom("", s.env("locks"))
		if err != nil {
			return r, err
		}
		var clients []redis.UniversalClient
		for url := range strings.SplitSeq(cmp.Or(s.stack.LockURLs(), s.stack.RedisURL()), ",") {
			settings.Redis.URL = url
			client, err := redisx.Open(settings.Redis, "triprize-bench", redisx.Once)
			if err != nil {
				return r, err
			}
			defer func() { _ = client.Close() }()
			clients = append(clients, client)
		}
		locker := lock.New(clients, "locks", settings.Locks, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		r, err = newWindow(&meter{groups: s.groups()}).repeat(ctx, measured, 1, func(int) caller {
			return func() (bool, error) {
				release, err := locker.Acquire(ctx, "position")
				release()
				return true, err
			}
		})
		r.note(average, divide(1000, r.figures[rate]))
		return r, err
	})
}
