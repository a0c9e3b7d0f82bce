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

	"triprize/internal/platform/config"
	"triprize/internal/platform/devstack"
)

// system is what one measurement runs on: a fresh database with campaigns on sale, a
// namespace in Redis, and, after serve or serveAPI, processes of its own.
type system struct {
	setup     *setup
	name      string
	dir       string // settings and logs
	settings  config.Settings
	db        *pgxpool.Pool // for the bench
	campaigns []uuid.UUID   // on sale, in the order they were made
	fleet     *devstack.Fleet
	provider  *cardProvider // see startProvider; nil: there is none, and no cards
	address   string
	payers    int // see crowd
}

// openSystem makes a system with a copy of a template.
func (s *setup) openSystem(ctx context.Context, template string) (sys *system, err error) {
	s.copies++
	sys = &system{setup: s, name: fmt.Sprintf("bench_%d", s.copies)}
	sys.dir = filepath.Join(s.stack.Dir, sys.name)
	if err := os.MkdirAll(sys.dir, 0o700); err != nil {
		return nil, err
	}
	if sys.settings, err = s.settings(sys.name, sys.settingsFile()); err != nil {
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

// openSale is openSystem for a template with campaigns.
func (s *setup) openSale(ctx context.Context, o offer) (*system, error) {
	if err := s.makeTemplate(ctx, o.name, func(db *pgxpool.Pool) error { return s.publish(ctx, db, o.baseLengths) }); err != nil {
		return nil, err
	}
	sys, err := s.openSystem(ctx, o.name)
	if err != nil {
		return nil, err
	}
	rows, err := sys.db.Query(ctx, `SELECT id FROM campaigns ORDER BY id`)
	if err == nil {
		sys.campaigns, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	}
	if err != nil {
		return nil, errors.Join(err, sys.close(ctx))
	}
	return sys, nil
}

func (sys *system) settingsFile() string { return filepath.Join(sys.dir, "triprize.yaml") }

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
func (sys *system) serveUnswept(ctx context.Context, workers int, env ...string) (err error) {
	if sys.address, err = devstack.FreeAddress(); err != nil {
		return err
	}
	sys.fleet = &devstack.Fleet{BinDir: sys.setup.binaries, LogDir: sys.dir, Env: append(env, config.FileVariable+"="+sys.settingsFile()),
		Logger: slog.New(slog.DiscardHandler)}
	if _, err := sys.fleet.StartAPI(sys.address); err != nil {
		return err
	}
	for range workers {
		if _, err := sys.fleet.StartWorker(); err != nil {
			return err
		}
	}
	return devstack.AwaitHTTP(ctx, "http://"+sys.address+"/readyz")
}

// meter returns a meter of the processes of this system and those that all share.
func (sys *system) meter() *meter {
	m := &meter{}
	if sys.fleet != nil {
		m.groups = append(m.groups, group{"api", pids(sys.fleet.APIs)}, group{"worker", pids(sys.fleet.Workers)})
	}
	m.groups = append(m.groups, sys.setup.groups()...)
	return m
}

func pids(children []*devstack.Child) []int {
	list := make([]int, len(children))
	for i, c := range children {
		list[i] = c.PID()
	}
	return list
}

// stop stops the processes. It returns those that ended too early or with an error.
func (sys *system) stop() (wrong []string) {
	if sys.fleet == nil {
		return nil
	}
	for _, kind := range [][]*devstack.Child{sys.fleet.APIs, sys.fleet.Workers, sys.fleet.Schedulers} {
		for _, c := range kind {
			if c.PID() == 0 {
				wrong = append(wrong, c.Name+" has ended too early: "+sys.logTail(c.Name))
			}
		}
	}
	if err := sys.fleet.Stop(); err != nil {
		wrong = append(wrong, err.Error())
	}
	sys.fleet = nil
	return wrong
}

// logTail returns the end of a process's log.
func (sys *system) logTail(child string) string {
	const most = 2000
	data, err := os.ReadFile(filepath.Join(sys.dir, child+".log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
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
		failed = append(failed, sys.provider.close())
	}
	sys.db.Close()
	failed = append(failed, sys.setup.dropDatabase(ctx, sys.name), sys.setup.redis.FlushAll(ctx).Err())
	return errors.Join(failed...)
}
