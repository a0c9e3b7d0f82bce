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
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
	"triprize/internal/entry/upkeep"
	"triprize/internal/platform/config"
	"triprize/sandbox/stripesim"
)

// system is what one measurement runs on: a fresh database with campaigns on sale, a
// namespace in Redis, and, after serve, processes of its own.
type system struct {
	setup     *setup
	name      string
	dir       string // logs
	settings  config.Settings
	db        *pgxpool.Pool // for long statements
	pool      *pgxpool.Pool // with the settings of a process
	campaigns []uuid.UUID   // on sale, in the order they were made
	fleet     *devstack.Fleet
	provider  *stripesim.Running // see serveCards; nil: there is none, and no cards
	address   string
}

// on measures on a system with a copy of a template, and closes the system.
func (s *setup) on(ctx context.Context, template string, measure func(*system) (result, error)) (r result, err error) {
	s.copies++
	sys := &system{setup: s, name: fmt.Sprintf("bench_%d", s.copies)}
	sys.dir = filepath.Join(s.stack.Dir, sys.name)
	if err := os.MkdirAll(sys.dir, 0o700); err != nil {
		return r, err
	}
	if sys.settings, err = config.LoadFrom("", s.env(sys.name)); err != nil {
		return r, err
	}
	if err := s.copyDatabase(ctx, template, sys.name); err != nil {
		return r, err
	}
	if sys.db, err = s.open(ctx, sys.name, statementTimeout); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	if sys.pool, err = s.open(ctx, sys.name, sys.settings.Postgres.StatementTimeout); err != nil {
		return r, err
	}
	defer sys.pool.Close()
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
	return sys.db.QueryRow(ctx, `SELECT array_agg(id ORDER BY id) FROM campaigns`).Scan(&sys.campaigns)
}

// serve starts the real binaries, with the default settings and those of env, and waits
// until they answer.
func (sys *system) serve(ctx context.Context, workers int, env ...string) error {
	sys.fleet = &devstack.Fleet{Scraped: true, BinDir: sys.setup.binaries, LogDir: sys.dir, Env: append(sys.setup.env(sys.name), env...), Logger: slog.New(slog.DiscardHandler)}
	_, err := sys.fleet.StartAPI("")
	for range workers {
		if err == nil {
			_, err = sys.fleet.StartWorker()
		}
	}
	if err == nil {
		_, err = sys.fleet.StartScheduler()
	}
	if err != nil {
		return err
	}
	sys.address = strings.TrimPrefix(sys.fleet.URLs[0], "http://")
	if err := sys.fleet.AwaitReady(ctx); err != nil {
		return err
	}
	return sys.awaitAudit(ctx)
}

// awaitAudit waits until the scheduler has audited everything once: otherwise that falls into short windows.
func (sys *system) awaitAudit(ctx context.Context) error {
	checked := 0
	for began := time.Now(); checked < len(upkeep.Invariants); wait(ctx, 20*time.Millisecond, nil) {
		if err := sys.db.QueryRow(ctx, `SELECT count(*) FROM audit_checks`).Scan(&checked); err != nil {
			return err
		}
		if time.Since(began) > time.Minute {
			return fmt.Errorf("the scheduler has checked %d of %d invariants in a minute", checked, len(upkeep.Invariants))
		}
	}
	return nil
}

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

// close stops the processes, drops the database and empties Redis, also after an interruption.
func (sys *system) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var failed []error
	for _, w := range sys.stop() {
		failed = append(failed, errors.New(w))
	}
	if sys.provider != nil {
		failed = append(failed, sys.provider.Close()) //nolint:contextcheck // the simulator stops at once
	}
	sys.db.Close()
	failed = append(failed, sys.setup.administer(ctx, "DROP DATABASE "+sys.name+" WITH (FORCE)"), sys.setup.redis.FlushAll(ctx).Err())
	return errors.Join(failed...)
}
