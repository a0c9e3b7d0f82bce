package fleet

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
	"triprize/sandbox/stripesim"
)

// The secrets of a test's sandbox.
const (
	SandboxKey    = "sk_test_of_the_fleet"
	WebhookSecret = "whsec_of_the_fleet" //nolint:gosec // it protects nothing: it signs what a test sends to itself
)

// Sandbox is a simulator of Stripe inside the test. Its Server looks at the provider's
// side and decides what happens there.
type Sandbox struct {
	*stripesim.Running
	T   *testing.T
	URL string // also after a restart

	settings stripesim.Settings
	stopped  bool
}

// NewSandbox starts a sandbox, and stops it at the end of the test. Its key, its webhook
// secret and, if there is none, its logger are the fleet's.
func NewSandbox(t *testing.T, settings stripesim.Settings) *Sandbox {
	t.Helper()
	address, err := devstack.FreeAddress()
	servers.NoError(t, err)
	settings.Key, settings.WebhookSecret = SandboxKey, WebhookSecret
	s := &Sandbox{T: t, URL: "http://" + address, settings: settings}
	s.Start()
	t.Cleanup(func() {
		if !s.stopped {
			s.Stop()
		}
	})
	return s
}

// Start starts a sandbox that was stopped, at its address. Settings.Dir is where it
// finds what was before.
func (s *Sandbox) Start() {
	s.T.Helper()
	var err error
	s.Running, err = stripesim.Start(context.Background(), strings.TrimPrefix(s.URL, "http://"), s.settings)
	servers.NoError(s.T, err)
	s.stopped = false
}

// Stop stops the sandbox. Connections are refused until it is started again.
func (s *Sandbox) Stop() {
	s.T.Helper()
	servers.NoError(s.T, s.Close())
	s.stopped = true
}

// SendTo sends the webhooks to an address, also after a restart.
func (s *Sandbox) SendTo(url string) {
	s.T.Helper()
	s.settings.WebhookURL = url
	servers.NoError(s.T, s.SetWebhook(url, WebhookSecret))
}

// Set lets faults befall all requests.
func (s *Sandbox) Set(f stripesim.Faults) {
	s.T.Helper()
	servers.NoError(s.T, s.SetFaults(f))
}

// PaymentsOf returns the payments of a purchase, the oldest first: those whose metadata
// say so.
func (s *Sandbox) PaymentsOf(purchaseID string) (all []stripesim.Payment) {
	for _, p := range s.Payments() {
		if p.Metadata["purchase_id"] == purchaseID {
			all = append(all, p)
		}
	}
	return all
}

// RefundsOf returns the refunds of a payment, without what released money that was never
// captured.
func (s *Sandbox) RefundsOf(intentID string) []stripesim.Refund {
	return slices.DeleteFunc(s.Refunds(), func(r stripesim.Refund) bool { return r.Intent != intentID || r.Void })
}

// startBeacon starts relays of a chain of test rounds whose first round is due now, and
// returns the settings by which processes find them. No campaign has the beacon unless it
// says so.
func (s *System) startBeacon(relays int) (env []string) {
	if relays == 0 {
		return nil
	}
	s.T.Helper()
	chain, err := drandsim.NewChain([]byte(strings.Repeat("5e", 32)), time.Now(), time.Second)
	servers.NoError(s.T, err)
	s.Beacon, err = drandsim.Start(s.T.Context(), drandsim.Settings{Chain: chain}, slices.Repeat([]string{"127.0.0.1:0"}, relays)...)
	servers.NoError(s.T, err)
	s.T.Cleanup(func() {
		servers.NoError(s.T, s.Beacon.Close())
	})
	b := &s.Settings.Beacon
	b.Relays, b.ChainInfo = strings.Join(s.Beacon.URLs(), ","), chain.Info().String()
	return []string{"TRIPRIZE_BEACON_RELAYS=" + b.Relays, "TRIPRIZE_BEACON_CHAIN=" + b.ChainInfo}
}
