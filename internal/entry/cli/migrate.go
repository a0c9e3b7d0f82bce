package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/trail"
)

// migrationTimeout replaces the statement timeout while migrating: an index on a large table takes long.
const migrationTimeout = time.Hour

// backupPage says how to keep what a migration would take.
const backupPage = "docs/operations.md, section \"Backup\""

// writeMigrations records migrations in the audit trail, unless they have just removed it.
func writeMigrations(ctx context.Context, db *pgxpool.Pool, lines []string) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // what was applied before an interruption, too
	defer cancel()
	var hasTrail bool
	if err = db.QueryRow(ctx, `SELECT to_regclass('audit_trail') IS NOT NULL`).Scan(&hasTrail); hasTrail {
		err = trail.Write(ctx, db, nil, map[string]any{"migrations": lines})
	}
	return err
}

func migrateCommand() *cobra.Command {
	parent := group("migrate", "Migrate the database schema up or down, or show its status")
	add := func(c *cobra.Command, nothing string, run func(ctx context.Context, m *schema.Migrator, cmd *cobra.Command, db *pgxpool.Pool) ([]string, error)) {
		c.Args = cobra.NoArgs
		// It waits for Postgres as the processes of the fleet do, so that both may be started at the same time.
		parent.AddCommand(withProgress(onDatabase(c, migrationTimeout, func(cmd *cobra.Command, _ []string, db *pgxpool.Pool, settings config.Settings) error {
			ctx, wait := cmd.Context(), settings.Postgres.StartWait
			waiting := sync.OnceFunc(func() {
				say(cmd.ErrOrStderr(), "waiting for postgres, at most %s (setting postgres.start_wait)", wait)
			})
			if err := postgres.Await(ctx, wait, db.Ping, func(error) { waiting() }); err != nil {
				return err
			}
			m, err := schema.New(db)
			if err != nil {
				return err
			}
			defer func() { _ = m.Close() }()
			lines, err := run(ctx, m, cmd, db)
			if len(lines) > 0 && c.Name() != "status" { // also those before one that has failed
				err = errors.Join(err, writeMigrations(acting(cmd, db, "schema"), db, lines))
			}
			if err == nil && len(lines) == 0 {
				lines = []string{nothing}
			}
			for _, line := range lines {
				say(cmd.OutOrStdout(), "%s", line)
			}
			return err
		})))
	}
	add(&cobra.Command{Use: "up", Short: "Apply all pending migrations"}, "nothing to do: the schema is up to date",
		func(ctx context.Context, m *schema.Migrator, _ *cobra.Command, db *pgxpool.Pool) ([]string, error) {
			if err := postgres.CheckServer(ctx, db); err != nil {
				return nil, err
			}
			return m.Up(ctx)
		})
	down := &cobra.Command{Use: "down", Short: "Revert the newest migration; first lists the data that would be lost", Long: `Revert the newest migration. The command first counts the rows and values that would be
lost. If there are any, it stops unless --destroy-data is set. Before you revert, make a
backup and stop every process of Triprize: data written after the count is lost too.`}
	var destroy bool
	down.Flags().BoolVar(&destroy, "destroy-data", false, "revert even if data is lost")
	add(down, "nothing to do: no migration is applied",
		func(ctx context.Context, m *schema.Migrator, cmd *cobra.Command, _ *pgxpool.Pool) ([]string, error) {
			name, losses, err := m.Losses(ctx)
			if err != nil || name == "" {
				return nil, err
			}
			if err := mayRevert(name, losses, cmd.ErrOrStderr(), destroy); err != nil {
				return nil, err
			}
			return m.Down(ctx)
		})
	add(&cobra.Command{Use: "status", Short: "List the migrations with their status"}, "",
		func(ctx context.Context, m *schema.Migrator, _ *cobra.Command, _ *pgxpool.Pool) ([]string, error) {
			return m.Status(ctx)
		})
	return parent
}

// mayRevert rejects a revert that loses data, unless destroy is set.
func mayRevert(name string, losses []string, out io.Writer, destroy bool) error {
	lost := "\n  " + strings.Join(losses, "\n  ")
	switch {
	case len(losses) == 0:
		say(out, "Reverting %s loses no row.", name)
	case !destroy:
		return fmt.Errorf("%s was not reverted: this data would be permanently lost:%s\nMake a backup first (%s), and use --destroy-data to proceed", name, lost, backupPage)
	default:
		say(out, "Reverting %s permanently deletes:%s\nOnly a backup can restore it (%s).", name, lost, backupPage)
	}
	return nil
}
