package cli

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/service/draw"
	"triprize/internal/service/webhooks"
)

// rotateBatch is how many secrets one transaction seals anew.
const rotateBatch = 500

// rotateCommand seals the secrets of all campaigns and webhook endpoints with draw.secret_key.
func rotateCommand() *cobra.Command {
	c := &cobra.Command{Use: "rotate-draw-secrets", Short: "Seal the secrets of all draws and webhook endpoints with draw.secret_key", Args: cobra.NoArgs,
		Long: "Seals the secrets of all draws, and of all webhook endpoints, with draw.secret_key. Those that it does not open are opened with\n" +
			"draw.previous_secret_keys. Sales and draws go on meanwhile, and it can be repeated. It ends with\n" +
			"status 1 when a secret is opened by no key: do not take a key away from the settings then."}
	file := configFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd.Context(), *file, func(db *pgxpool.Pool, settings config.Settings) error {
			if settings.Draw.SecretKey == "" {
				return errors.New("setting draw.secret_key (TRIPRIZE_DRAW_SECRET_KEY): is required by key rotate-draw-secrets")
			}
			keys, err := keyring.Parse(settings.Draw.SecretKey, settings.Draw.PreviousSecretKeys)
			if err != nil {
				return err
			}
			draws, err := draw.RotateSecrets(cmd.Context(), db, keys, rotateBatch)
			sayRotated(cmd, "secrets", "campaign", draws.Checked, draws.Resealed, draws.Unopened)
			if err != nil {
				return err
			}
			hooks, err := webhooks.RotateSecrets(cmd.Context(), db, keys, rotateBatch)
			sayRotated(cmd, "secrets of webhook endpoints", "webhook endpoint", hooks.Checked, hooks.Resealed, hooks.Unopened)
			if unopened := len(draws.Unopened) + len(hooks.Unopened); err == nil && unopened > 0 {
				err = fmt.Errorf("%d secrets are opened by no key of the settings", unopened)
			}
			return err
		})
	}
	return c
}

func sayRotated(cmd *cobra.Command, secrets, owner string, checked, resealed int, unopened []uuid.UUID) {
	say(cmd.OutOrStdout(), "%d %s: %d sealed anew, %d opened by no key", checked, secrets, resealed, len(unopened))
	for _, id := range unopened {
		say(cmd.ErrOrStderr(), "%s %s: its secret is opened by no key of the settings", owner, id)
	}
}
