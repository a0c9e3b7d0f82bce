package config

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"triprize/internal/domain/beacon"
)

// Beacon is the chain of public randomness that campaigns may bind themselves to, and the
// relays that give out its rounds.
type Beacon struct {
	Default     bool          `mapstructure:"default"`
	Relays      string        `mapstructure:"relays"       validate:"max=8192"`
	Timeout     time.Duration `mapstructure:"timeout"      validate:"min=10ms,max=5m"`
	ChainHash   string        `mapstructure:"chain_hash"   validate:"required,max=64"`
	PublicKey   string        `mapstructure:"public_key"   validate:"required,max=192"`
	GenesisTime int64         `mapstructure:"genesis_time" validate:"min=0,max=253402300799"` // the end of the year 9999
	GenesisSeed string        `mapstructure:"genesis_seed" validate:"required,max=64"`
	BeaconID    string        `mapstructure:"beacon_id"    validate:"required,max=64"`
	Period      time.Duration `mapstructure:"period"       validate:"min=1s,max=24h"`
}

// mostRelays bounds the relays of an installation.
const mostRelays = 16

// Enabled tells whether campaigns may have a beacon: there are relays to ask.
func (b Beacon) Enabled() bool { return strings.TrimSpace(b.Relays) != "" }

// URLs returns the base URLs of the relays, without a slash at the end.
func (b Beacon) URLs() []string {
	if !b.Enabled() {
		return nil
	}
	urls := strings.Split(b.Relays, ",")
	for i := range urls {
		urls[i] = strings.TrimRight(strings.TrimSpace(urls[i]), "/")
	}
	return urls
}

// Chain returns the chain of the settings. It is an error when its data do not hash to
// chain_hash, or are no chain.
func (b Beacon) Chain() (c beacon.Chain, err error) {
	c = beacon.Chain{GenesisTime: b.GenesisTime, ID: b.BeaconID, PeriodS: int(b.Period / time.Second)}
	if b.Period%time.Second != 0 {
		return c, fault("beacon.period", fmt.Sprintf("is %s, must be whole seconds", b.Period))
	}
	if c.PublicKey, err = hex.DecodeString(b.PublicKey); err != nil {
		return c, fault("beacon.public_key", "must be hex digits")
	}
	if c.GenesisSeed, err = hex.DecodeString(b.GenesisSeed); err != nil {
		return c, fault("beacon.genesis_seed", "must be hex digits")
	}
	if err := c.Check(); err != nil {
		return c, fault("beacon.public_key", err.Error())
	}
	if hash := fmt.Sprintf("%x", c.Hash()); hash != b.ChainHash {
		return c, fault("beacon.chain_hash", fmt.Sprintf("is %s, but public_key, genesis_time, genesis_seed, beacon_id and period are those of the chain %s", b.ChainHash, hash))
	}
	return c, nil
}

// checkBeacon checks what one field alone cannot say.
func checkBeacon(b Beacon) error {
	if _, err := b.Chain(); err != nil {
		return err
	}
	if b.Default && !b.Enabled() {
		return fault("beacon.default", "is true, but beacon.relays names no relay; set relays, or false")
	}
	urls := b.URLs()
	if len(urls) > mostRelays {
		return fault("beacon.relays", fmt.Sprintf("has %d URLs, must be at most %d", len(urls), mostRelays))
	}
	for i, text := range urls {
		if err := checkRelay(text); err != nil {
			return err
		}
		if slices.Contains(urls[:i], text) {
			return fault("beacon.relays", "names "+text+" twice")
		}
	}
	return nil
}

// checkRelay requires https, or http on this machine: a relay cannot lie about a round, but
// the network between could keep it from us.
func checkRelay(text string) error {
	const name = "beacon.relays"
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "", u.User != nil, u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return fault(name, "must be URLs separated by commas, https://host or https://host/path, without a user, a query or a fragment")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fault(name, "must be https://; http:// is for this machine only (127.0.0.1, ::1, localhost)")
	}
	return nil
}
