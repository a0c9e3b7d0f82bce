package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
)

// migrationTimeout replaces the statement timeout while migrating: an index on a large table takes long.
const migrationTimeout = time.Hour

// backupPage says how to keep what a migration would take.
const backupPage = "docs/operations.md, section \"Backup\""

func migrateCommand() *cobra.Command {
	parent := group("migrate", "Migrate the database schema up or down, or show its status")
	add := func(c *cobra.Command, nothing string, run func(ctx context.Context, m *schema.Migrator, cmd *cobra.Command) ([]string, error)) {
		c.Args = cobra.NoArgs
		// It waits for Postgres as the processes of the fleet do, so that both may be started at the same time.
		parent.AddCommand(onDatabase(c, migrationTimeout, func(cmd *cobra.Command, _ []string, db *pgxpool.Pool, settings config.Settings) error {
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
			lines, err := run(ctx, m, cmd)
			if err == nil && len(lines) == 0 {
				lines = []string{nothing}
			}
			for _, line := range lines {
				say(cmd.OutOrStdout(), "%s", line)
			}
			return err
		}))
	}
	add(&cobra.Command{Use: "up", Short: "Apply all pending migrations"}, "nothing to do: the schema is up to date",
		func(ctx context.Context, m *schema.Migrator, _ *cobra.Command) ([]string, error) { return m.Up(ctx) })
	down := &cobra.Command{Use: "down", Short: "Revert the newest migration; first lists the data that would be lost", Long: `Revert the newest migration. The command first counts the rows and values that would be
lost. If there are any, it stops unless --destroy-data is set. On a terminal it asks for
confirmation. Before you revert, make a backup and stop every process of Triprize: data
written after the count is lost too.`}
	var destroy bool
	down.Flags().BoolVar(&destroy, "destroy-data", false, "revert even if data is lost")
	add(down, "nothing to do: no migration is applied",
		func(ctx context.Context, m *schema.Migrator, cmd *cobra.Command) ([]string, error) {
			name, losses, err := m.Losses(ctx)
			if err != nil || name == "" {
				return nil, err
			}
			ask := question{in: cmd.InOrStdin(), out: cmd.ErrOrStderr(), terminal: isTerminal(cmd.InOrStdin())}
			if err := mayRevert(name, losses, ask, destroy); err != nil {
				return nil, err
			}
			return m.Down(ctx)
		})
	add(&cobra.Command{Use: "status", Short: "List the migrations with their status"}, "",
		func(ctx context.Context, m *schema.Migrator, _ *cobra.Command) ([]string, error) {
			return m.Status(ctx)
		})
	return parent
}

// mayRevert rejects a revert that loses data, unless destroy is set, and one that the user at the
// terminal does not confirm.
func mayRevert(name string, losses []schema.Loss, ask question, destroy bool) error {
	var lost strings.Builder
	for _, l := range losses {
		fmt.Fprintf(&lost, "\n  %s", l)
	}
	if len(losses) > 0 && !destroy {
		return fmt.Errorf("%s was not reverted: this data would be permanently lost:%s\nMake a backup first (%s), and use --destroy-data to proceed", name, &lost, backupPage)
	}
	if len(losses) > 0 {
		say(ask.out, "Reverting %s permanently deletes:%s\nOnly a backup can restore it (%s).", name, &lost, backupPage)
	} else {
		say(ask.out, "Reverting %s loses no row.", name)
	}
	return ask.agreed("Revert it?")
}

// question asks for a confirmation at a terminal. Without a terminal it asks nothing.
type question struct {
	in       io.Reader
	out      io.Writer
	terminal bool
}

// agreed returns nil if the answer is yes, or there is no terminal.
func (q question) agreed(what string) error {
	if !q.terminal {
		return nil
	}
	fmt.Fprint(q.out, what+" (yes/no) ")
	answer, err := bufio.NewReader(q.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("the answer was not yes: nothing was changed")
	}
	return nil
}

// isTerminal reports whether in is a terminal.
func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}
