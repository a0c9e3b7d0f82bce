package cli

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"triprize/internal/platform/devstack"
	"triprize/internal/simulator/stripesim"
)

// cards is the sandbox beside the fleet of an environment. It runs in this process.
type cards struct {
	url    string
	key    string
	secret string // of its webhooks
	end    context.CancelFunc
	ended  chan error
}

// startCards starts the sandbox with its state in the environment's folder. Its webhooks
// go to the api, and are sent again until the api is there. They are of the types that an
// endpoint at Stripe should have enabled.
func (e *environment) startCards(ctx context.Context, logger *slog.Logger) error {
	dir := filepath.Join(e.dir, "sandbox")
	key, keyErr := keptSecret(dir, "key", "sk_test_")
	secret, secretErr := keptSecret(dir, "webhook.secret", "whsec_")
	address, addressErr := devstack.FreeAddress()
	if err := errors.Join(keyErr, secretErr, addressErr); err != nil {
		return err
	}
	listener, err := listenOn(ctx, address)
	if err != nil {
		return err
	}
	server, err := stripesim.New(stripesim.Settings{Key: key, Dir: dir, WebhookURL: e.url() + "/webhooks/stripe", WebhookSecret: secret, WebhookEvents: eventTypes(), Logger: logger})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx)) // the fleet stops first
	c := &cards{url: "http://" + address, key: key, secret: secret, end: end, ended: make(chan error, 1)}
	go func() { c.ended <- stripesim.Serve(running, listener, server) }()
	e.mu.Lock()
	e.cards = c
	e.mu.Unlock()
	return nil
}

// settings are the lines of the settings file that send cards to the sandbox. Buyers
// return to a page of the sandbox when a request names no other.
func (c *cards) settings() string {
	return "payments:\n  return_url: '" + c.url + "/returned'\n" +
		"  stripe: {key: '" + c.key + "', url: '" + c.url + "', webhook_secret: '" + c.secret + "'}\n"
}

// stop ends the sandbox and waits for it.
func (c *cards) stop() error {
	c.end()
	return <-c.ended
}
