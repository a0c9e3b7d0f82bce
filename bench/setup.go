package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/key"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/schema"
)

// setup is what all scenarios share: private servers, the binaries, and template
// databases. Each measurement gets a fresh copy of a template, so that earlier rounds do
// not affect it.
type setup struct {
	stack    *devstack.Stack
	redis    redis.UniversalClient
	binaries string
	drawKey  string
	appKey   string          // of every Triprize database: it is in their common template
	otherKey string          // of another client
	made     map[string]bool // templates
	copies   int
}

// statementTimeout bounds the statements of this program, such as filling a template or
// the audit.
const statementTimeout = 10 * time.Minute

// openSetup starts servers, builds the binaries unless there are some, and makes the template of
// all Triprize databases.
func openSetup(ctx context.Context, servers devstack.Options, binaries string) (s *setup, err error) {
	stack, err := devstack.Start(ctx, servers)
	if err != nil {
		return nil, err
	}
	s = &setup{stack: stack, drawKey: keyring.NewKey(), binaries: binaries, made: make(map[string]bool)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	settings, err := config.LoadFrom("", s.env("postgres"))
	if err != nil {
		return nil, err
	}
	redisx.LogTo(slog.New(slog.DiscardHandler))
	if s.redis, err = redisx.Open(settings.Redis, "triprize-bench"); err != nil {
		return nil, err
	}
	if binaries == "" {
		bin := filepath.Join(stack.Dir, "bin")
		if err := os.MkdirAll(bin, 0o700); err != nil {
			return nil, err
		}
		if s.binaries, err = devstack.Binaries(ctx, bin); err != nil {
			return nil, err
		}
	}
	return s, s.makeTemplate(ctx, migrated, func(db *pgxpool.Pool) error {
		if err := schema.Migrate(ctx, db); err != nil {
			return err
		}
		if s.appKey, err = key.Create(ctx, db, key.App, "bench"); err != nil {
			return err
		}
		s.otherKey, err = key.Create(ctx, db, key.App, "stranger")
		return err
	})
}

func (s *setup) close() (err error) {
	if s.redis != nil {
		err = s.redis.Close()
	}
	return errors.Join(err, s.stack.Stop())
}

// with measures on servers of other kinds, which run only meanwhile.
func (s *setup) with(ctx context.Context, servers devstack.Options, measure func(*setup) (result, error)) (r result, err error) {
	other, err := openSetup(ctx, servers, s.binaries)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, other.close()) }()
	return measure(other)
}

// migrated is the template of every other Triprize template.
const migrated = "template_migrated"

// makeTemplate makes a database and fills it, once.
func (s *setup) makeTemplate(ctx context.Context, name string, fill func(db *pgxpool.Pool) error) error {
	if s.made[name] {
		return nil
	}
	origin := "template0"
	if s.made[migrated] && !strings.HasPrefix(name, documentsTemplate) {
		origin = migrated
	}
	if err := s.copyDatabase(ctx, origin, name); err != nil {
		return err
	}
	db, err := s.open(ctx, name, statementTimeout)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := fill(db); err != nil {
		return fmt.Errorf("fill %s: %w", name, err)
	}
	if _, err := db.Exec(ctx, `VACUUM ANALYZE`); err != nil {
		return fmt.Errorf("fill %s: %w", name, err)
	}
	s.made[name] = true
	return nil
}

// env are the settings of all processes with one database: the defaults.
func (s *setup) env(database string) []string {
	return []string{
		"TRIPRIZE_POSTGRES_URL=" + s.stack.PostgresURL(database), "TRIPRIZE_REDIS_URL=" + s.stack.RedisURL(), "TRIPRIZE_REDIS_NAMESPACE=" + database,
		"TRIPRIZE_DRAW_SECRET_KEY=" + s.drawKey, "TRIPRIZE_BEACON_DEFAULT=false", "TRIPRIZE_BEACON_RELAYS=",
	}
}

// open opens a pool for statements that take no longer than longest.
func (s *setup) open(ctx context.Context, database string, longest time.Duration) (*pgxpool.Pool, error) {
	settings, err := config.LoadFrom("", s.env(database))
	if err != nil {
		return nil, err
	}
	settings.Postgres.StatementTimeout, settings.Postgres.IdleInTransactionTimeout = longest, longest
	return postgres.Open(ctx, settings.Postgres, "triprize-bench")
}

// administer runs statements on the server itself.
func (s *setup) administer(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.stack.PostgresURL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// copyDatabase makes a copy of the database origin. The checkpoint after it writes all
// changes out, so that a measurement does not pay for earlier ones. As after any
// checkpoint, the first change of a page then logs the whole page.
func (s *setup) copyDatabase(ctx context.Context, origin, name string) error {
	return s.administer(ctx, "CREATE DATABASE "+name+" TEMPLATE "+origin, "CHECKPOINT")
}

// groups are the processes that every scenario shares; load is this program. The primaries of a
// Redis Cluster are one group; replicas, Sentinels and the standby of Postgres are standbys.
func (s *setup) groups() []group {
	var postgres, pid int
	var redis []int
	for tag := range 64 { // some of them in each part of a Cluster
		if postgres, pid = s.stack.Primaries(strconv.Itoa(tag)); !slices.Contains(redis, pid) {
			redis = append(redis, pid)
		}
	}
	standbys := slices.DeleteFunc(s.stack.PIDs(), func(pid int) bool { return pid == postgres || slices.Contains(redis, pid) })
	return []group{{"postgres", []int{postgres}}, {"redis", redis}, {"standbys", standbys}, {"load", []int{os.Getpid()}}}
}
