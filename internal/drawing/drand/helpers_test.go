package drand_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"triprize.example/draw/beacon"
	"triprize/internal/drawing/drand"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

// due is the newest round of the chains of these tests, by their clock.
const due = 100

// relays starts n relays of a chain whose clock stands still at round due.
func relays(t *testing.T, n int) *drandsim.Network {
	t.Helper()
	genesis := time.Unix(1_700_000_000, 0)
	chain, err := drandsim.NewChain([]byte(strings.Repeat("s", 32)), genesis, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	network, err := drandsim.Start(t.Context(), drandsim.Settings{Chain: chain, Clock: func() time.Time { return genesis.Add((due - 1) * time.Second) }},
		slices.Repeat([]string{"127.0.0.1:0"}, n)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	return network
}

// asking is a client with its metrics.
type asking struct {
	*drand.Client

	t        *testing.T
	registry *prometheus.Registry
}

// client returns a client of relays whose bounds in time no machine is too slow for.
func client(t *testing.T, urls ...string) asking {
	t.Helper()
	return clientOf(t, config.Beacon{Relays: strings.Join(urls, ","), Timeout: time.Hour})
}

func clientOf(t *testing.T, settings config.Beacon) asking {
	t.Helper()
	registry := prometheus.NewRegistry()
	c, err := drand.New(settings, registry, servers.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return asking{Client: c, t: t, registry: registry}
}

// count returns how many answers had an outcome, those of all relays together.
func (a asking) count(outcome string) (n int) {
	a.t.Helper()
	families, err := a.registry.Gather()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "outcome" && l.GetValue() == outcome }) {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// set sets the faults of relays.
func set(t *testing.T, f drandsim.Faults, some ...*drandsim.Relay) {
	t.Helper()
	for _, r := range some {
		if err := r.SetFaults(f); err != nil {
			t.Fatal(err)
		}
	}
}

// serve is a relay that does what a function says.
func serve(t testing.TB, handle http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server.URL
}

// want fails the test unless it was given a round of the chain.
func want(t *testing.T, chain beacon.Chain, number uint64, got beacon.Round, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	verified, err := chain.Verify(number, got.Signature)
	if err != nil || got.Number != number || got.Randomness != verified.Randomness {
		t.Errorf("got round %d, %x: %v", got.Number, got.Signature, err)
	}
}

// wantNone fails the test when it was given a round.
func wantNone(t *testing.T, got beacon.Round, err error) {
	t.Helper()
	if err == nil || got.Number != 0 || got.Signature != nil || got.Randomness != [32]byte{} {
		t.Errorf("got %+v, %v", got, err)
	}
	if errors.Is(err, drand.ErrNotYet) {
		t.Errorf("it is taken for a round that is not there yet: %v", err)
	}
}
