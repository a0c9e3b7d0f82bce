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
	parent := group("migrate", "Migrate the database schema up or down, or show its state")
	add := func(c *cobra.Command, nothing string, run func(context.Context, *schema.Migrator, *cobra.Command) ([]string, error)) {
		c.Args = cobra.NoArgs
		file := configFlag(c)
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			settings, err := config.Load(*file)
			if err != nil {
				return err
			}
			settings.Postgres.StatementTimeout = migrationTimeout
			return migrate(cmd.Context(), settings, cmd.OutOrStdout(), cmd.ErrOrStderr(), nothing,
				func(ctx context.Context, m *schema.Migrator) ([]string, error) { return run(ctx, m, cmd) })
		}
		parent.AddCommand(c)
	}
	add(&cobra.Command{Use: "up", Short: "Apply all missing migrations"}, "nothing to do: the schema is up to date",
		func(ctx context.Context, m *schema.Migrator, _ *cobra.Command) ([]string, error) { return m.Up(ctx) })
	down := &cobra.Command{Use: "down", Short: "Revert the newest migration; says first what is lost", Long: `Revert the newest migration. It says first what that would delete, counted in the
tables. When rows or values would be lost, it refuses, unless --destroy-data says that
they may be. On a terminal it asks before it changes anything.
Make a backup, and stop every process of Triprize first: what they write after the
count is not in it.`}
	var destroy bool
	down.Flags().BoolVar(&destroy, "destroy-data", false, "revert it although rows are lost")
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
	add(&cobra.Command{Use: "status", Short: "List the migrations and whether they are applied"}, "",
		func(ctx context.Context, m *schema.Migrator, _ *cobra.Command) ([]string, error) {
			return m.Status(ctx)
		})
	return parent
}

// mayRevert refuses to revert a migration when something is lost and destroy does not say that it
// may be, or the user of a terminal does not agree.
func mayRevert(name string, losses []schema.Loss, ask question, destroy bool) error {
	var lost strings.Builder
	for _, l := range losses {
		fmt.Fprintf(&lost, "\n  %s", l)
	}
	if len(losses) > 0 && !destroy {
		return fmt.Errorf("%s is not reverted: this would be lost for ever:%s\nMake a backup first (%s), and say --destroy-data if you mean it", name, &lost, backupPage)
	}
	if len(losses) > 0 {
		say(ask.out, "Reverting %s deletes for ever:%s\nOnly a backup brings it back (%s).", name, &lost, backupPage)
	} else {
		say(ask.out, "Reverting %s loses no row.", name)
	}
	return ask.agreed("Revert it?")
}

// question is how somebody at a terminal is asked. Without a terminal nobody is.
type question struct {
	in       io.Reader
	out      io.Writer
	terminal bool
}

// agreed returns nil when the answer is yes, or nobody is there to ask.
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

// isTerminal tells whether somebody types what is read.
func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// migrate waits for Postgres as the processes of the fleet do, so that both may be
// started at the same time, and runs migrations.
func migrate(ctx context.Context, settings config.Settings, out, news io.Writer, nothing string,
	run func(context.Context, *schema.Migrator) ([]string, error),
) error {
	pool, err := postgres.Open(ctx, settings.Postgres, "triprize-migrate")
	if err != nil {
		return err
	}
	defer pool.Close()
	waiting := sync.OnceFunc(func() {
		say(news, "waiting for postgres, at most %s (setting postgres.start_wait)", settings.Postgres.StartWait)
	})
	if err := postgres.Await(ctx, settings.Postgres.StartWait, pool.Ping, nil, func(error) { waiting() }); err != nil {
		return err
	}
	m, err := schema.New(pool)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	lines, err := run(ctx, m)
	for _, line := range lines {
		say(out, "%s", line)
	}
	if err == nil && len(lines) == 0 {
		say(out, "%s", nothing)
	}
	return err
}
