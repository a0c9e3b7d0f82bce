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

// venue is where one measurement takes place: a fresh database with campaigns on
// sale, a namespace in Redis, and, when it is served, processes of its own.
type venue struct {
	stage     *stage
	name      string
	dir       string // settings and logs
	settings  config.Settings
	db        *pgxpool.Pool // for the bench
	campaigns []uuid.UUID   // on sale, in the order they were made
	fleet     *devstack.Fleet
	address   string
	payers    int // see crowd
}

// openVenue copies a template.
func (s *stage) openVenue(ctx context.Context, template string) (v *venue, err error) {
	s.copies++
	v = &venue{stage: s, name: fmt.Sprintf("bench_%d", s.copies)}
	v.dir = filepath.Join(s.stack.Dir, v.name)
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return nil, err
	}
	if v.settings, err = s.settings(v.name, v.settingsFile()); err != nil {
		return nil, err
	}
	if err := s.copyDatabase(ctx, template, v.name); err != nil {
		return nil, err
	}
	if v.db, err = s.open(ctx, v.name); err != nil {
		return nil, errors.Join(err, s.dropDatabase(ctx, v.name))
	}
	return v, nil
}

// openSale is openVenue for a template with campaigns.
func (s *stage) openSale(ctx context.Context, o offer) (*venue, error) {
	if err := s.makeTemplate(ctx, o.name, func(db *pgxpool.Pool) error { return s.publish(ctx, db, o.baseLengths) }); err != nil {
		return nil, err
	}
	v, err := s.openVenue(ctx, o.name)
	if err != nil {
		return nil, err
	}
	rows, err := v.db.Query(ctx, `SELECT id FROM campaigns ORDER BY id`)
	if err == nil {
		v.campaigns, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	}
	if err != nil {
		return nil, errors.Join(err, v.close(ctx))
	}
	return v, nil
}

func (v *venue) settingsFile() string { return filepath.Join(v.dir, "triprize.yaml") }

// serve starts the real binaries, with the default settings, and waits until
// they answer.
func (v *venue) serve(ctx context.Context, workers int) (err error) {
	if v.address, err = devstack.FreeAddress(); err != nil {
		return err
	}
	v.fleet = &devstack.Fleet{BinDir: v.stage.binaries, LogDir: v.dir, Env: []string{config.FileVariable + "=" + v.settingsFile()},
		Logger: slog.New(slog.DiscardHandler)}
	if _, err := v.fleet.StartAPI(v.address); err != nil {
		return err
	}
	for range workers {
		if _, err := v.fleet.StartWorker(); err != nil {
			return err
		}
	}
	if _, err := v.fleet.StartScheduler(); err != nil {
		return err
	}
	return devstack.AwaitHTTP(ctx, "http://"+v.address+"/readyz")
}

// meter returns a meter of the processes at work here.
func (v *venue) meter() *meter {
	m := &meter{}
	if v.fleet != nil {
		m.groups = append(m.groups, group{"api", pids(v.fleet.APIs)}, group{"worker", pids(v.fleet.Workers)})
	}
	m.groups = append(m.groups, v.stage.groups()...)
	return m
}

func pids(children []*devstack.Child) []int {
	list := make([]int, len(children))
	for i, c := range children {
		list[i] = c.PID()
	}
	return list
}

// dismiss stops the processes and returns what is wrong with how they ended.
func (v *venue) dismiss() (wrong []string) {
	if v.fleet == nil {
		return nil
	}
	for _, kind := range [][]*devstack.Child{v.fleet.APIs, v.fleet.Workers, v.fleet.Schedulers} {
		for _, c := range kind {
			if c.PID() == 0 {
				wrong = append(wrong, c.Name+" has ended by itself: "+v.lastWords(c.Name))
			}
		}
	}
	if err := v.fleet.Stop(); err != nil {
		wrong = append(wrong, err.Error())
	}
	v.fleet = nil
	return wrong
}

// lastWords returns the end of a process's log.
func (v *venue) lastWords(child string) string {
	const most = 2000
	data, err := os.ReadFile(filepath.Join(v.dir, child+".log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
}

// closeTimeout bounds the clean-up, which is done even after an interruption.
const closeTimeout = time.Minute

// close takes everything down again.
func (v *venue) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var failed []error
	for _, w := range v.dismiss() {
		failed = append(failed, errors.New(w))
	}
	v.db.Close()
	failed = append(failed, v.stage.dropDatabase(ctx, v.name), v.stage.redis.FlushAll(ctx).Err())
	return errors.Join(failed...)
}
