package cli

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/apikey"
	"triprize/internal/store/webhook"
)

func keyCommand() *cobra.Command {
	parent := group("key", "Create, list and revoke API keys; rotate the key of draw secrets")

	create := &cobra.Command{Use: "create", Short: "Create an API key and print it, once; with the URL of the tables' owner", Args: cobra.NoArgs}
	file := configFlag(create)
	role := create.Flags().String("role", "", "operator or app")
	client := create.Flags().String("client", "", "the client the key belongs to; keys of one client share their idempotency keys")
	_ = create.MarkFlagRequired("role")
	_ = create.MarkFlagRequired("client")
	create.RunE = func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd.Context(), *file, func(db *pgxpool.Pool, _ config.Settings) error {
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
		return withDatabase(cmd.Context(), *listFile, func(db *pgxpool.Pool, _ config.Settings) error {
			keys, err := apikey.List(cmd.Context(), db)
			if err != nil {
				return err
			}
			return keyTable.print(cmd.OutOrStdout(), keys, *asJSON)
		})
	}

	revoke := &cobra.Command{Use: "revoke PREFIX", Short: "Revoke the API key tp_PREFIX_…, and end its streams and webhook endpoints", Args: cobra.ExactArgs(1)}
	revokeFile := configFlag(revoke)
	successor := revoke.Flags().String("transfer-endpoints-to", "", "PREFIX of another key of the client, which gets its webhook endpoints; otherwise they are disabled")
	revoke.RunE = func(cmd *cobra.Command, args []string) error {
		return withDatabase(cmd.Context(), *revokeFile, func(db *pgxpool.Pool, _ config.Settings) error {
			endpoints, err := revokeKey(cmd.Context(), db, args[0], *successor)
			switch {
			case err != nil:
				return err
			case *successor != "":
				say(cmd.OutOrStdout(), "revoked; %d webhook endpoints are of the key %s now", endpoints, *successor)
			default:
				say(cmd.OutOrStdout(), "revoked; %d webhook endpoints are disabled", endpoints)
			}
			return nil
		})
	}
	parent.AddCommand(create, list, revoke, rotateCommand())
	return parent
}

// revokeKey revokes a key, and ends what it has made, or gives its endpoints to successor.
func revokeKey(ctx context.Context, db *pgxpool.Pool, prefix, successor string) (endpoints int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if err := apikey.Revoke(ctx, tx, prefix); err != nil {
			return err
		}
		if successor != "" {
			if err := apikey.CheckSuccessor(ctx, tx, prefix, successor); err != nil {
				return err
			}
		}
		endpoints, err = webhook.KeyRevoked(ctx, tx, prefix, successor)
		return err
	})
	return endpoints, err
}

// dateOr returns a time in UTC, or what stands for none.
func dateOr(at *time.Time, none string) string {
	if at == nil {
		return none
	}
	return at.UTC().Format(time.DateTime)
}

var keyTable = table[apikey.Key]{"keys", "PREFIX\tROLE\tCLIENT\tCREATED\tLAST USED\tREVOKED", func(k apikey.Key) string {
	return cells(k.Prefix, k.Role, k.Client, k.CreatedAt.UTC(), dateOr(k.LastUsedAt, "never"), dateOr(k.RevokedAt, "-"))
}}
