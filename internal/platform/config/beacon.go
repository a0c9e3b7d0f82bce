package config

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"triprize.example/draw/beacon"
)

// Beacon is the chain of public randomness that campaigns may use, and the relays that serve its rounds.
type Beacon struct {
	Default   bool          `mapstructure:"default"`
	Relays    string        `mapstructure:"relays" validate:"max=8192"`
	ChainInfo string        `mapstructure:"chain" validate:"max=4096"`
	Timeout   time.Duration `mapstructure:"-"`
}

// maxRelays is the maximum number of relays.
const maxRelays = 16

// Enabled reports whether campaigns may use a beacon, because there are relays.
func (b Beacon) Enabled() bool { return strings.TrimSpace(b.Relays) != "" }

// URLs returns the base URLs of the relays, without a trailing slash.
func (b Beacon) URLs() []string {
	urls := listOf(b.Relays)
	for i := range urls {
		urls[i] = strings.TrimRight(urls[i], "/")
	}
	return urls
}

// Chain returns the chain of the settings: quicknet, or beacon.chain in the format of drand's relays. It returns an
// error if the chain is invalid or does not match its hash.
func (b Beacon) Chain() (c beacon.Chain, err error) {
	if strings.TrimSpace(b.ChainInfo) == "" {
		return beacon.Quicknet(), nil
	}
	var info struct {
		PublicKey   string `json:"public_key"` // these three in hex
		GroupHash   string `json:"groupHash"`
		Hash        string `json:"hash"`
		Period      int    `json:"period"`       // seconds
		GenesisTime int64  `json:"genesis_time"` // Unix seconds
		Metadata    struct {
			BeaconID string `json:"beaconID"`
		} `json:"metadata"`
	}
	bad := func(format string, args ...any) error { return fault("beacon.chain", format, args...) }
	if err := json.Unmarshal([]byte(b.ChainInfo), &info); err != nil {
		return c, bad("must be JSON, as a relay answers at /info: %v", err)
	}
	c = beacon.Chain{GenesisTime: info.GenesisTime, ID: info.Metadata.BeaconID, PeriodS: info.Period}
	if c.PublicKey, err = hex.DecodeString(info.PublicKey); err != nil {
		return c, bad("public_key must be hex digits")
	}
	if c.GenesisSeed, err = hex.DecodeString(info.GroupHash); err != nil {
		return c, bad("groupHash must be hex digits")
	}
	if err := c.Check(); err != nil {
		return c, bad("%v", err)
	}
	if hash := fmt.Sprintf("%x", c.Hash()); hash != info.Hash {
		return c, bad("hash is %q, but the other fields are those of the chain %s", info.Hash, hash)
	}
	return c, nil
}

// checkBeacon checks what validation tags cannot.
func checkBeacon(b Beacon) error {
	if _, err := b.Chain(); err != nil {
		return err
	}
	if b.Default && !b.Enabled() {
		return fault("beacon.default", "is true, but beacon.relays names no relay; set relays, or false")
	}
	urls := b.URLs()
	if len(urls) > maxRelays {
		return fault("beacon.relays", "has %d URLs, must be at most %d", len(urls), maxRelays)
	}
	for i, text := range urls {
		switch u, plain := baseURL(text); { // a relay cannot forge a round, but the network could withhold it
		case u == nil:
			return fault("beacon.relays", "must be URLs separated by commas, https://host or https://host/path, without a user, a query or a fragment")
		case plain:
			return fault("beacon.relays", httpsOnly)
		case slices.Contains(urls[:i], text):
			return fault("beacon.relays", "names %s twice", text)
		}
	}
	return nil
}
