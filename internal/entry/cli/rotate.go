package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
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
		settings, err := config.Load(*file)
		if err != nil {
			return err
		}
		if settings.Draw.SecretKey == "" {
			return errors.New("setting draw.secret_key (TRIPRIZE_DRAW_SECRET_KEY): is required by key rotate-draw-secrets")
		}
		keys, err := keyring.Parse(settings.Draw.SecretKey, settings.Draw.PreviousSecretKeys)
		if err != nil {
			return err
		}
		pool, err := postgres.Open(cmd.Context(), settings.Postgres, "triprize-cli")
		if err != nil {
			return err
		}
		defer pool.Close()
		done, err := draw.RotateSecrets(cmd.Context(), pool, keys, rotateBatch)
		say(cmd.OutOrStdout(), "%d secrets: %d sealed anew, %d opened by no key",
			done.Checked, done.Resealed, len(done.Unopened))
		for _, id := range done.Unopened {
			say(cmd.ErrOrStderr(), "campaign %s: its secret is opened by no key of the settings", id)
		}
		if err != nil {
			return err
		}
		hooks, err := webhooks.RotateSecrets(cmd.Context(), pool, keys, rotateBatch)
		say(cmd.OutOrStdout(), "%d secrets of webhook endpoints: %d sealed anew, %d opened by no key", hooks.Checked, hooks.Resealed, len(hooks.Unopened))
		for _, id := range hooks.Unopened {
			say(cmd.ErrOrStderr(), "webhook endpoint %s: its secret is opened by no key of the settings", id)
		}
		if unopened := len(done.Unopened) + len(hooks.Unopened); err == nil && unopened > 0 {
			err = fmt.Errorf("%d secrets are opened by no key of the settings", unopened)
		}
		return err
	}
	return c
}
