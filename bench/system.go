package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/sandbox/stripesim"
)

// system is what one measurement runs on: a fresh database with campaigns on sale, a
// namespace in Redis, and, after serve or serveAPI, processes of its own.
type system struct {
	setup     *setup
	name      string
	dir       string // logs
	settings  config.Settings
	db        *pgxpool.Pool // for the bench
	campaigns []uuid.UUID   // on sale, in the order they were made
	fleet     *devstack.Fleet
	provider  *stripesim.Running // see serveCards; nil: there is none, and no cards
	address   string
}

// openSystem makes a system with a copy of a template.
func (s *setup) openSystem(ctx context.Context, template string) (sys *system, err error) {
	s.copies++
	sys = &system{setup: s, name: fmt.Sprintf("bench_%d", s.copies)}
	sys.dir = filepath.Join(s.stack.Dir, sys.name)
	if err := os.MkdirAll(sys.dir, 0o700); err != nil {
		return nil, err
	}
	if sys.settings, err = config.LoadFrom("", s.env(sys.name)); err != nil {
		return nil, err
	}
	if err := s.copyDatabase(ctx, template, sys.name); err != nil {
		return nil, err
	}
	if sys.db, err = s.open(ctx, sys.name); err != nil {
		return nil, errors.Join(err, s.dropDatabase(ctx, sys.name))
	}
	return sys, nil
}

// on measures on a system with a copy of a template, and closes the system.
func (s *setup) on(ctx context.Context, template string, measure func(*system) (result, error)) (r result, err error) {
	sys, err := s.openSystem(ctx, template)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	return measure(sys)
}

// onSale is on for a template with the campaigns of an offer.
func (s *setup) onSale(ctx context.Context, o offer, measure func(*system) (result, error)) (result, error) {
	err := s.makeTemplate(ctx, o.name, func(db *pgxpool.Pool) error {
		if err := s.publish(ctx, db, o.baseLengths); err != nil || o.fill == nil {
			return err
		}
		return o.fill(ctx, db)
	})
	if err != nil {
		return result{}, err
	}
	return s.on(ctx, o.name, func(sys *system) (r result, err error) {
		if err := sys.findCampaigns(ctx); err != nil {
			return r, err
		}
		return measure(sys)
	})
}

func (sys *system) findCampaigns(ctx context.Context) error {
	rows, err := sys.db.Query(ctx, `SELECT id FROM campaigns ORDER BY id`)
	if err == nil {
		sys.campaigns, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	}
	return err
}

// withPool calls do with a pool that has the settings of a process.
func (sys *system) withPool(ctx context.Context, do func(*pgxpool.Pool) (result, error)) (r result, err error) {
	pool, err := postgres.Open(ctx, sys.settings.Postgres, "triprize-bench-measured")
	if err != nil {
		return r, err
	}
	defer pool.Close()
	return do(pool)
}

// serve starts the real binaries, with the default settings and those of env, and waits
// until they answer.
func (sys *system) serve(ctx context.Context, workers int, env ...string) error {
	if err := sys.serveUnswept(ctx, workers, env...); err != nil {
		return err
	}
	_, err := sys.fleet.StartScheduler()
	return err
}

// serveUnswept is serve without a scheduler.
func (sys *system) serveUnswept(ctx context.Context, workers int, env ...string) error {
	sys.fleet = &devstack.Fleet{BinDir: sys.setup.binaries, LogDir: sys.dir, Env: append(sys.setup.env(sys.name), env...), Logger: slog.New(slog.DiscardHandler)}
	if _, err := sys.fleet.StartAPI(""); err != nil {
		return err
	}
	sys.address = strings.TrimPrefix(sys.url(), "http://")
	for range workers {
		if _, err := sys.fleet.StartWorker(); err != nil {
			return err
		}
	}
	return sys.fleet.AwaitReady(ctx)
}

func (sys *system) url() string { return sys.fleet.URLs[0] }

// meter returns a meter of the processes of this system and those that all share.
func (sys *system) meter() *meter {
	m := &meter{}
	if sys.fleet != nil {
		m.groups = append(m.groups, group{"api", devstack.PIDs(sys.fleet.APIs)}, group{"worker", devstack.PIDs(sys.fleet.Workers)})
	}
	m.groups = append(m.groups, sys.setup.groups()...)
	return m
}

// stop stops the processes. It returns those that ended too early or with an error.
func (sys *system) stop() (wrong []string) {
	if sys.fleet == nil {
		return nil
	}
	for _, kind := range [][]*devstack.Child{sys.fleet.APIs, sys.fleet.Workers, sys.fleet.Schedulers} {
		for _, c := range kind {
			if c.PID() == 0 {
				wrong = append(wrong, c.Name+" has ended too early: "+sys.fleet.LogTail(c.Name))
			}
		}
	}
	if err := sys.fleet.Stop(); err != nil {
		wrong = append(wrong, err.Error())
	}
	sys.fleet = nil
	return wrong
}

// closeTimeout bounds the clean-up, which also runs after an interruption.
const closeTimeout = time.Minute

// close stops the processes, drops the database and empties Redis.
func (sys *system) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var failed []error
	for _, w := range sys.stop() {
		failed = append(failed, errors.New(w))
	}
	if sys.provider != nil {
		failed = append(failed, sys.provider.Close())
	}
	sys.db.Close()
	failed = append(failed, sys.setup.dropDatabase(ctx, sys.name), sys.setup.redis.FlushAll(ctx).Err())
	return errors.Join(failed...)
}
