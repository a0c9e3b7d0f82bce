package devkit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/stripe"
	"triprize/sandbox/stripesim"
)

func sandboxCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sandbox",
		Short: "Run a simulator of Stripe until Ctrl-C",
		Long: `Run a simulator of Stripe: payments, refunds, events and signed webhooks. The payment
method determines the outcome (docs/test-cards.md). No money moves. triprize-dev dev
includes a sandbox; this command is for other programs or your own fleet.`,
		Args: cobra.NoArgs,
	}
	listen := c.Flags().String("listen", "127.0.0.1:12121", "address; loopback only")
	var settings stripesim.Settings
	c.Flags().StringVar(&settings.Dir, "data", ".triprize/sandbox", "folder of its state, not deleted at the end; empty: memory only")
	c.Flags().StringVar(&settings.Key, "key", "", "secret key of its clients, sk_test_…; empty: one is generated and stored in the folder")
	c.Flags().StringVar(&settings.SettlesIn, "settles-in", "", "currency of the account's balance, such as usd; empty: that of each charge")
	c.Flags().Float64Var(&settings.ExchangeRate, "exchange-rate", 0, "from minor units of a charge to those of --settles-in")
	c.Flags().StringVar(&settings.WebhookURL, "webhook-url", "", "where events are sent, such as http://127.0.0.1:8080/webhooks/stripe; empty: nowhere")
	c.Flags().StringVar(&settings.WebhookSecret, "webhook-secret", "", "signs the webhooks, whsec_…")
	c.Flags().StringSliceVar(&settings.WebhookEvents, "webhook-events", nil, "types of the events that are sent, as enabled at an endpoint of Stripe, separated by commas; empty: all")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkLoopback(*listen); err != nil {
			return err
		}
		if settings.WebhookURL == "" && settings.WebhookSecret != "" {
			return errors.New("--webhook-secret signs what is sent to --webhook-url, which is missing")
		}
		if settings.WebhookURL == "" && len(settings.WebhookEvents) > 0 {
			return errors.New("--webhook-events chooses what is sent to --webhook-url, which is missing")
		}
		if settings.Key == "" {
			made, err := keptSecret(settings.Dir, "key", "sk_test_")
			if err != nil {
				return err
			}
			settings.Key = made
		}
		settings.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
		return runSandbox(cmd, *listen, settings)
	}
	return c
}

func runSandbox(cmd *cobra.Command, listen string, settings stripesim.Settings) error {
	running, err := stripesim.Start(cmd.Context(), listen, settings)
	if err != nil {
		return inUse(listen, err)
	}
	say(cmd.OutOrStdout(), `
The sandbox is running. Ctrl-C stops it.

  url      %s
  key      %s
  account  %s
`, running.URL, settings.Key, running.Account())
	<-cmd.Context().Done()
	return running.Close()
}

// sandbox is a simulator of Stripe beside a fleet.
type sandbox struct {
	*stripesim.Running
	key, secret string
}

// startSandbox starts the sandbox with its state in the environment's folder. Its webhooks
// go to the api, and are sent again until the api is there. They are of the types that an
// endpoint at Stripe should have enabled.
func (e *environment) startSandbox(ctx context.Context) error {
	dir := filepath.Join(e.dir, "sandbox")
	key, keyErr := keptSecret(dir, "key", "sk_test_")
	secret, secretErr := keptSecret(dir, "webhook.secret", "whsec_")
	if err := errors.Join(keyErr, secretErr); err != nil {
		return err
	}
	running, err := stripesim.Start(ctx, "127.0.0.1:0", stripesim.Settings{Key: key, Dir: dir, WebhookURL: e.url() + "/webhooks/stripe",
		WebhookSecret: secret, WebhookEvents: payprovider.EventTypes(stripe.NewReader(false)), Logger: e.fleet.Logger})
	if err != nil {
		return err
	}
	e.sandbox, e.fleet.Beside = sandbox{running, key, secret}, append(e.fleet.Beside, running)
	return nil
}

// settings are the lines of the settings file that send cards to the sandbox. Buyers
// return to a page of the sandbox when a request names no other.
func (s sandbox) settings() string {
	return "payments:\n  allow_test: true\n  return_url: '" + s.URL + "/returned'\n" +
		"  stripe: {key: '" + s.key + "', url: '" + s.URL + "', webhook_secret: '" + s.secret + "', payment_method_types: 'card,konbini'}\n"
}

// inUse says what to do when an address is in use.
func inUse(address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use; choose another with --listen", address)
	}
	return err
}

// keptSecret reads a secret from its file in a folder, or makes one and keeps it there.
// Without a folder it makes one.
func keptSecret(dir, name, prefix string) (string, error) {
	file := filepath.Join(dir, name)
	if dir != "" {
		if data, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(data), prefix) {
			return strings.TrimSpace(string(data)), nil
		}
	}
	secret := prefix + strings.ToLower(rand.Text())
	if dir == "" {
		return secret, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return secret, os.WriteFile(file, []byte(secret+"\n"), 0o600)
}
