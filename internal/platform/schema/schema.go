// Package schema migrates the database and checks its version. Migrations are goose SQL files; a session lock
// prevents concurrent migrations.
package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"triprize/migrations"
)

// ErrOld means that the database is older than the program.
var ErrOld = errors.New("the database schema is older than this program; run: triprize migrate up")

// Migrator migrates one database.
type Migrator struct {
	db       *sql.DB
	files    fs.FS
	provider *goose.Provider
}

// New returns a Migrator on pool. Close it; the pool stays open.
func New(pool *pgxpool.Pool) (*Migrator, error) {
	return NewOn(stdlib.OpenDBFromPool(pool), migrations.Files)
}

// Migrate migrates a database to the newest version.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	m, err := New(pool)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	_, err = m.Up(ctx)
	return err
}

// NewOn is New with a database/sql handle, which Close closes, and the migrations in files.
func NewOn(db *sql.DB, files fs.FS) (*Migrator, error) {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, fmt.Errorf("schema.New: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("schema.New: %w", err)
	}
	return &Migrator{db: db, files: files, provider: provider}, nil
}

// Close ends the Migrator's sessions.
func (m *Migrator) Close() error { return m.db.Close() }

// Up applies the missing migrations and returns one line for each.
func (m *Migrator) Up(ctx context.Context) ([]string, error) {
	results, err := m.provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results = partial.Applied
	}
	return lines(results), err
}

// Down reverts the newest migration.
func (m *Migrator) Down(ctx context.Context) ([]string, error) {
	result, err := m.provider.Down(ctx)
	if errors.Is(err, goose.ErrNoNextVersion) {
		return nil, nil
	}
	return lines([]*goose.MigrationResult{result}), err
}

// Status returns one line for each migration: applied or pending.
func (m *Migrator) Status(ctx context.Context) ([]string, error) {
	states, err := m.provider.Status(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range states {
		line := fmt.Sprintf("%-8s %s", s.State, s.Source.Path)
		if s.State == goose.StateApplied {
			line += "  " + s.AppliedAt.UTC().Format("2006-01-02 15:04:05")
		}
		out = append(out, line)
	}
	return out, nil
}

// Check returns ErrOld if the newest migration of this program is not applied. It accepts a newer database, for
// rolling upgrades.
func Check(ctx context.Context, pool *pgxpool.Pool) error {
	newest, err := Newest()
	if err != nil {
		return err
	}
	var version int64
	err = pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&version)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedTable {
		return ErrOld
	}
	if err != nil {
		return fmt.Errorf("schema.Check: %w", err)
	}
	if version < newest {
		return fmt.Errorf("%w (it has version %d, this program needs %d)", ErrOld, version, newest)
	}
	return nil
}

const undefinedTable = "42P01"

// Newest returns the version of the newest embedded migration.
func Newest() (int64, error) {
	files, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("schema.Newest: no migrations: %w", err)
	}
	return goose.NumericComponent(files[len(files)-1])
}

func lines(results []*goose.MigrationResult) []string {
	var out []string
	for _, r := range results {
		if r != nil {
			out = append(out, r.String())
		}
	}
	return out
}
