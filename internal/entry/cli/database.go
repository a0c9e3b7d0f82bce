package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
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

	list := &cobra.Command{Use: "list", Short: "List the API keys, and when each was last used (UTC)", Args: cobra.NoArgs}
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

// dateOr returns a time in UTC, or what stands for none.
func dateOr(at *time.Time, none string) string {
	if at == nil {
		return none
	}
	return at.UTC().Format(time.DateTime)
}

func printKeys(out io.Writer, keys []apikey.Key, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{"keys": keys})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PREFIX\tROLE\tCLIENT\tCREATED\tLAST USED\tREVOKED")
	for _, k := range keys {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", k.Prefix, k.Role, k.Client, k.CreatedAt.UTC().Format(time.DateTime),
			dateOr(k.LastUsedAt, "never"), dateOr(k.RevokedAt, "-"))
	}
	return table.Flush()
}
