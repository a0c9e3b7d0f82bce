package devkit

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/token"
)

// tokenCommand plays the issuer of tokens, which is a login service in production.
func tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "token --user USER",
		Short: "Sign a JSON Web Token of a user, for development, and print it",
		Long: `Sign a JSON Web Token of a user with tokens.hs256_secret, and print it. The settings of triprize-dev dev
have such a secret (--config DIR/triprize.yaml).`,
		Args: cobra.NoArgs,
	}
	file := c.Flags().String("config", "", "settings file (default: $TRIPRIZE_CONFIG, or none)")
	user := c.Flags().String("user", "", "the user, as in user_id")
	role := c.Flags().String("role", string(token.User), "user or public")
	lifetime := c.Flags().Duration("for", time.Hour, "how long it is valid")
	_ = c.MarkFlagRequired("user")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		settings, err := config.Load(*file)
		if err != nil {
			return err
		}
		if *lifetime <= 0 {
			return fmt.Errorf("--for %s: must be positive", *lifetime)
		}
		signed, err := token.Sign(settings.Tokens, *user, token.Role(*role), *lifetime, time.Now())
		if err == nil {
			say(cmd.OutOrStdout(), "%s", signed)
		}
		return err
	}
	return c
}
