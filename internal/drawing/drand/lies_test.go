package drand_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"triprize.example/draw/beacon"
	"triprize/internal/drawing/drand"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

var lies = map[string]drandsim.Faults{
	"random bytes":         {Wrong: drandsim.WrongRandom},
	"another signature":    {Wrong: drandsim.WrongOtherRound},
	"another number":       {Wrong: drandsim.WrongNumber},
	"another randomness":   {Wrong: drandsim.WrongRandomness},
	"signed by a stranger": {Forked: true},
}

func TestARelayThatLiesIsNeverBelievedAndOneHonestRelayIsEnough(t *testing.T) {
	t.Parallel()
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := relays(t, 3)
			set(t, lie, n.Relays()...)
			c := client(t, n.URLs()...)
			got, err := c.Round(t.Context(), n.Chain().Chain, due-10)
			wantNone(t, got, err)
			if c.count("lie") != 3 || c.count("ok") != 0 {
				t.Errorf("%d lies are counted, and %d good answers", c.count("lie"), c.count("ok"))
			}
			if lie.Wrong != drandsim.WrongNumber { // of the latest round no number is asked for
				got, err = c.Latest(t.Context(), n.Chain().Chain)
				wantNone(t, got, err)
			}
			set(t, drandsim.Faults{}, n.Relays()[2])
			for number := uint64(1); number < 6; number++ { // the first relay to be asked is chosen at random
				got, err := c.Round(t.Context(), n.Chain().Chain, number)
				want(t, n.Chain().Chain, number, got, err)
			}
		})
	}
}

func TestPublishedRoundsOfQuicknetAreAcceptedAndNoOthers(t *testing.T) {
	t.Parallel()
	quicknet := beacon.Quicknet()
	signatures := map[string]string{
		"657413": "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b",
		"123":    "b75c69d0b72a5d906e854e808ba7e2accb1542ac355ae486d591aa9d43765482e26cd02df835d3546d23c4b13e0dfc92",
		"657414": "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b", // of 657413
	}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		number, found := strings.CutPrefix(r.URL.Path, "/52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971/public/")
		if !found {
			t.Errorf("asked for %s", r.URL.Path)
		}
		fmt.Fprintf(w, `{"round":%s,"signature":%q,"previous_signature":"","more":[1]}`, number, signatures[number])
	})
	c := client(t, url)
	for number, randomness := range map[uint64]string{
		657413: "fc1873a13f3545aeade8401532ef5519920652eee6b0d2b19ca12643b87b3587",
		123:    "fb8f7bc29bf24db51871ec8c79f3a1e4bd0557bc0dfcee9ed1d924e69d1c60dc",
	} {
		got, err := c.Round(t.Context(), quicknet, number)
		want(t, quicknet, number, got, err)
		if hex.EncodeToString(got.Randomness[:]) != randomness {
			t.Errorf("round %d has the randomness %x", number, got.Randomness)
		}
	}
	got, err := c.Round(t.Context(), quicknet, 657414)
	wantNone(t, got, err)
	if !errors.Is(err, beacon.ErrSignature) {
		t.Error(err)
	}
}

func TestALieIsLoggedOnceInAWhileAndNamesTheRelay(t *testing.T) {
	t.Parallel()
	n := relays(t, 1)
	set(t, drandsim.Faults{Forked: true}, n.Relays()...)
	var log bytes.Buffer
	c, err := drand.New(config.Beacon{Relays: n.URLs()[0], Timeout: time.Hour}, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	const asked = 20
	for number := range uint64(asked) {
		got, err := c.Round(t.Context(), n.Chain().Chain, number+1)
		wantNone(t, got, err)
	}
	c.Close()
	lines := strings.Count(log.String(), "\n")
	if lines < 1 || lines >= asked || !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "relay="+strings.TrimPrefix(n.URLs()[0], "http://")) {
		t.Errorf("%d lies are these lines:\n%s", asked, &log)
	}
}

// Every answer of a relay is a round of the chain or an error.
func FuzzAnswersOfRelays(f *testing.F) {
	chain, err := drandsim.NewChain([]byte(strings.Repeat("s", 32)), time.Unix(1_700_000_000, 0), time.Second)
	if err != nil {
		f.Fatal(err)
	}
	good := chain.Sign(7)
	f.Add(fmt.Appendf(nil, `{"round":7,"randomness":"%x","signature":"%x"}`, good.Randomness, good.Signature))
	f.Add(fmt.Appendf(nil, `{"round":7,"signature":"%x"}`, good.Signature))
	f.Add(fmt.Appendf(nil, `{"round":8,"signature":"%x"}`, good.Signature))
	f.Add(fmt.Appendf(nil, `{"round":7,"round":8,"signature":"%X","signature":null}`, good.Signature))
	f.Add([]byte(`{"round":18446744073709551615,"signature":""}`))
	f.Add([]byte(`{"round":-1}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`<html>`))
	body := make(chan []byte, 1)
	url := serve(f, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(<-body) })
	c, err := drand.New(config.Beacon{Relays: url, Timeout: servers.Patience}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.Close)
	f.Fuzz(func(t *testing.T, sent []byte) {
		body <- sent
		got, err := c.Round(t.Context(), chain.Chain, 7)
		if err == nil && (got.Number != 7 || !bytes.Equal(got.Signature, good.Signature) || got.Randomness != good.Randomness) {
			t.Errorf("%q is taken for %+v", sent, got)
		}
	})
}
