package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/drawing"
	"triprize/internal/key"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
	"triprize/internal/webhook"
)

func keyCommand() *cobra.Command {
	parent := group("key", "Create, list and revoke API keys; re-encrypt secrets with a new key")

	create := &cobra.Command{Use: "create", Short: "Create an API key and print it once; connect as the owner of the tables", Args: cobra.NoArgs}
	role := required(create, "role", "operator, viewer or app")
	client := required(create, "client", "client of the key; all keys of a client share idempotency keys")
	onDatabase(create, 0, func(cmd *cobra.Command, _ []string, db *pgxpool.Pool, _ config.Settings) error {
		var made string
		err := postgres.InTx(cmd.Context(), db, func(tx pgx.Tx) (err error) {
			if made, err = key.Create(cmd.Context(), tx, key.Role(*role), *client); err != nil {
				return err
			}
			return trail.Write(acting(cmd, db, strings.Split(made, "_")[1]), tx, nil, map[string]any{"role": *role, "client": *client})
		})
		if err == nil {
			say(cmd.OutOrStdout(), "%s", made)
		}
		return err
	})

	list := &cobra.Command{Use: "list", Short: "List the API keys, and when each was last used (UTC)", Args: cobra.NoArgs}
	asJSON := list.Flags().Bool("json", false, "print JSON")
	onDatabase(list, 0, func(cmd *cobra.Command, _ []string, db *pgxpool.Pool, _ config.Settings) error {
		keys, err := key.List(cmd.Context(), db)
		if err != nil {
			return err
		}
		return keyTable.print(cmd.OutOrStdout(), keys, *asJSON)
	})

	revoke := &cobra.Command{Use: "revoke PREFIX", Short: "Revoke the API key tp_PREFIX_…, end its streams and disable its webhook endpoints", Args: cobra.ExactArgs(1)}
	successor := revoke.Flags().String("transfer-endpoints-to", "", "PREFIX of another key of the client to transfer the webhook endpoints to, instead of disabling them")
	onDatabase(revoke, 0, func(cmd *cobra.Command, args []string, db *pgxpool.Pool, _ config.Settings) error {
		_, endpoints, err := key.Revoke(acting(cmd, db, args[0]), db, args[0], *successor, webhook.KeyRevoked)
		switch {
		case err != nil:
			return err
		case *successor != "":
			say(cmd.OutOrStdout(), "revoked; %d webhook endpoints were transferred to the key %s", endpoints, *successor)
		default:
			say(cmd.OutOrStdout(), "revoked; %d webhook endpoints were disabled", endpoints)
		}
		return nil
	})
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

var keyTable = table[key.Key]{"keys", "PREFIX\tROLE\tCLIENT\tCREATED\tLAST USED\tREVOKED", func(k key.Key) string {
	return cells(k.Prefix, k.Role, k.Client, k.CreatedAt.UTC(), dateOr(k.LastUsedAt, "never"), dateOr(k.RevokedAt, "-"))
}}

// rotateBatch is how many secrets one transaction re-encrypts.
const rotateBatch = 500

// rotateCommand re-encrypts the secrets of all campaigns and webhook endpoints with draw.secret_key.
func rotateCommand() *cobra.Command {
	c := &cobra.Command{Use: "rotate-draw-secrets", Short: "Re-encrypt the secrets of all draws and webhook endpoints with draw.secret_key", Args: cobra.NoArgs,
		Long: "Re-encrypt the secrets of all draws and webhook endpoints with draw.secret_key. Secrets under older keys\n" +
			"are decrypted with draw.previous_secret_keys. Sales and draws continue, and the command can be repeated.\n" +
			"Status 1 if no key decrypts a secret: do not remove a key from the settings then."}
	return onDatabase(c, 0, func(cmd *cobra.Command, _ []string, db *pgxpool.Pool, settings config.Settings) error {
		if settings.Draw.SecretKey == "" {
			return errors.New("setting draw.secret_key (TRIPRIZE_DRAW_SECRET_KEY): is required by key rotate-draw-secrets")
		}
		keys, err := keyring.Parse(settings.Draw.SecretKey, settings.Draw.PreviousSecretKeys)
		if err != nil {
			return err
		}
		if err := trail.Write(acting(cmd, db, "draw.secret_key"), db, nil, nil); err != nil { // before it: it has many transactions
			return err
		}
		draws, err := drawing.RotateSecrets(cmd.Context(), db, keys, rotateBatch)
		sayRotated(cmd, "secrets", "campaign", draws.Checked, draws.Resealed, draws.Unopened)
		if err != nil {
			return err
		}
		hooks, err := webhook.RotateSecrets(cmd.Context(), db, keys, rotateBatch)
		sayRotated(cmd, "secrets of webhook endpoints", "webhook endpoint", hooks.Checked, hooks.Resealed, hooks.Unopened)
		if unopened := len(draws.Unopened) + len(hooks.Unopened); err == nil && unopened > 0 {
			err = fmt.Errorf("%d secrets cannot be decrypted with any key of the settings", unopened)
		}
		return err
	})
}

func sayRotated(cmd *cobra.Command, secrets, owner string, checked, resealed int, unopened []uuid.UUID) {
	say(cmd.OutOrStdout(), "%d %s: %d re-encrypted, %d without a matching key", checked, secrets, resealed, len(unopened))
	for _, id := range unopened {
		say(cmd.ErrOrStderr(), "%s %s: its secret cannot be decrypted with any key of the settings", owner, id)
	}
}
