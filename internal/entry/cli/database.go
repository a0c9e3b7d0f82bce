package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/store/apikey"
)

// withDatabase calls do with a pool for the database in the settings.
func withDatabase(ctx context.Context, file string, do func(*pgxpool.Pool) error) error {
	settings, err := config.Load(file)
	if err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, settings.Postgres, "triprize-cli")
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(pool)
}

// migrationTimeout replaces the statement timeout while migrating: an index on a large table takes long.
const migrationTimeout = time.Hour

func migrateCommand() *cobra.Command {
	parent := group("migrate", "Migrate the database schema up or down, or show its state")
	add := func(use, short, nothing string, run func(context.Context, *schema.Migrator) ([]string, error)) {
		c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
		file := configFlag(c)
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			settings, err := config.Load(*file)
			if err != nil {
				return err
			}
			settings.Postgres.StatementTimeout = migrationTimeout
			return migrate(cmd.Context(), settings, cmd.OutOrStdout(), cmd.ErrOrStderr(), nothing, run)
		}
		parent.AddCommand(c)
	}
	add("up", "Apply all missing migrations", "nothing to do: the schema is up to date",
		func(ctx context.Context, m *schema.Migrator) ([]string, error) { return m.Up(ctx) })
	add("down", "Revert the newest migration", "nothing to do: no migration is applied",
		func(ctx context.Context, m *schema.Migrator) ([]string, error) { return m.Down(ctx) })
	add("status", "List the migrations and whether they are applied", "",
		func(ctx context.Context, m *schema.Migrator) ([]string, error) { return m.Status(ctx) })
	return parent
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
	if err := postgres.Await(ctx, settings.Postgres.StartWait, pool.Ping, func(error) { waiting() }); err != nil {
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

func keyCommand() *cobra.Command {
	parent := group("key", "Create, list and revoke API keys; rotate the key of draw secrets")

	create := &cobra.Command{Use: "create", Short: "Create an API key and print it, once", Args: cobra.NoArgs}
	file := configFlag(create)
	role := create.Flags().String("role", "", "operator or app")
	client := create.Flags().String("client", "", "the client the key belongs to; keys of one client share their idempotency keys")
	_ = create.MarkFlagRequired("role")
	_ = create.MarkFlagRequired("client")
	create.RunE = func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd.Context(), *file, func(db *pgxpool.Pool) error {
			key, err := apikey.Create(cmd.Context(), db, apikey.Role(*role), *client)
			if err == nil {
				say(cmd.OutOrStdout(), "%s", key)
			}
			return err
		})
	}

	list := &cobra.Command{Use: "list", Short: "List the API keys", Args: cobra.NoArgs}
	listFile := configFlag(list)
	asJSON := list.Flags().Bool("json", false, "print JSON")
	list.RunE = func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd.Context(), *listFile, func(db *pgxpool.Pool) error {
			keys, err := apikey.List(cmd.Context(), db)
			if err != nil {
				return err
			}
			return printKeys(cmd.OutOrStdout(), keys, *asJSON)
		})
	}

	revoke := &cobra.Command{Use: "revoke PREFIX", Short: "Revoke the API key tp_PREFIX_…", Args: cobra.ExactArgs(1)}
	revokeFile := configFlag(revoke)
	revoke.RunE = func(cmd *cobra.Command, args []string) error {
		return withDatabase(cmd.Context(), *revokeFile, func(db *pgxpool.Pool) error {
			return apikey.Revoke(cmd.Context(), db, args[0])
		})
	}
	parent.AddCommand(create, list, revoke, rotateCommand())
	return parent
}

func printKeys(out io.Writer, keys []apikey.Key, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{"keys": keys})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PREFIX\tROLE\tCLIENT\tCREATED\tREVOKED")
	for _, k := range keys {
		revoked := "-"
		if k.RevokedAt != nil {
			revoked = k.RevokedAt.Format(time.DateTime)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", k.Prefix, k.Role, k.Client, k.CreatedAt.Format(time.DateTime), revoked)
	}
	return table.Flush()
}
