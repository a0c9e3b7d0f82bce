package devkit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"triprize/sandbox/drandsim"
)

// relays is how many relays triprize-dev dev --beacon has.
const relays = 3

// testChain is the file of the chain of an environment's folder: rounds of one second,
// signed with a key from the seed.
type testChain struct {
	Seed        string `json:"seed"`         // hex; it predicts every round
	GenesisTime int64  `json:"genesis_time"` // Unix seconds
}

// startBeacon starts relays of the chain of this folder, which is made the first time. They
// run in this process.
func (e *environment) startBeacon(ctx context.Context) error {
	chain, err := keptChain(filepath.Join(e.dir, "beacon"))
	if err != nil {
		return err
	}
	if e.beacon, err = drandsim.Start(ctx, drandsim.Settings{Chain: chain}, slices.Repeat([]string{"127.0.0.1:0"}, relays)...); err != nil {
		return err
	}
	e.fleet.Beside = append(e.fleet.Beside, e.beacon)
	return nil
}

// keptChain reads the chain of a folder, or makes one and keeps it there.
func keptChain(dir string) (*drandsim.Chain, error) {
	file := filepath.Join(dir, "chain.json")
	var kept testChain
	data, err := os.ReadFile(file)
	switch {
	case os.IsNotExist(err):
		seed := make([]byte, 32)
		_, _ = rand.Read(seed) // never fails
		kept = testChain{Seed: hex.EncodeToString(seed), GenesisTime: time.Now().Unix()}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if err := writeJSON(file, kept); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(data, &kept); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	seed, err := hex.DecodeString(kept.Seed)
	if err != nil {
		return nil, fmt.Errorf("%s: the seed: %w", file, err)
	}
	chain, err := drandsim.NewChain(seed, time.Unix(kept.GenesisTime, 0), time.Second)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return chain, nil
}

// beaconSettings are the lines of the settings file about the beacon. No campaign has it
// unless it says so, and without relays none can.
func (e *environment) beaconSettings() string {
	if e.beacon == nil {
		return "beacon: {default: false, relays: ''}\n"
	}
	return fmt.Sprintf("beacon:\n  default: false\n  relays: '%s'\n  chain: '%s'\n", strings.Join(e.beacon.URLs(), ","), e.beacon.Chain().Info())
}

// aboutBeacon is what dev.json says of the beacon; nil: there is none.
type aboutBeacon struct {
	ChainHash string   `json:"chain_hash"`
	PeriodS   int      `json:"period_s"`
	Relays    []string `json:"relays"` // their URLs; faults: PUT /control/faults
}

func (e *environment) aboutBeacon() *aboutBeacon {
	if e.beacon == nil {
		return nil
	}
	c := e.beacon.Chain()
	return &aboutBeacon{ChainHash: fmt.Sprintf("%x", c.Hash()), PeriodS: c.PeriodS, Relays: e.beacon.URLs()}
}

// introduceBeacon is what is printed of the beacon.
func (e *environment) introduceBeacon() string {
	if e.beacon == nil {
		return ""
	}
	return fmt.Sprintf(`
  beacon        %[1]s
                (relays of a chain of test rounds, for policies.beacon; faults: PUT /control/faults)
  chain hash    %[2]x
  check a draw  %[3]s/verify?chain=%[2]x&campaign=ID
`, strings.Join(e.beacon.URLs(), " "), e.beacon.Chain().Hash(), e.url())
}
