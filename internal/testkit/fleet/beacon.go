package fleet

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"triprize/internal/platform/drandsim"
)

// startBeacon starts relays of a chain of test rounds whose first round is due now, and
// returns the settings by which processes find them. No campaign has the beacon unless it
// says so.
func (s *System) startBeacon(relays int) (env []string) {
	if relays == 0 {
		return nil
	}
	s.T.Helper()
	chain, err := drandsim.NewChain([]byte(strings.Repeat("5e", 32)), time.Now(), time.Second)
	if err != nil {
		s.T.Fatal(err)
	}
	if s.Beacon, err = drandsim.Start(s.T.Context(), drandsim.Settings{Chain: chain}, slices.Repeat([]string{"127.0.0.1:0"}, relays)...); err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		if err := s.Beacon.Close(); err != nil {
			s.T.Error(err)
		}
	})
	hash := chain.Hash()
	b := &s.Settings.Beacon
	b.Relays, b.ChainHash, b.PublicKey, b.GenesisSeed = strings.Join(s.Beacon.URLs(), ","), hex.EncodeToString(hash[:]), hex.EncodeToString(chain.PublicKey), hex.EncodeToString(chain.GenesisSeed)
	b.GenesisTime, b.BeaconID, b.Period = chain.GenesisTime, chain.ID, time.Duration(chain.PeriodS)*time.Second
	return []string{
		"TRIPRIZE_BEACON_RELAYS=" + b.Relays, "TRIPRIZE_BEACON_CHAIN_HASH=" + b.ChainHash, "TRIPRIZE_BEACON_PUBLIC_KEY=" + b.PublicKey, "TRIPRIZE_BEACON_GENESIS_SEED=" + b.GenesisSeed,
		"TRIPRIZE_BEACON_GENESIS_TIME=" + strconv.FormatInt(b.GenesisTime, 10), "TRIPRIZE_BEACON_BEACON_ID=" + b.BeaconID, "TRIPRIZE_BEACON_PERIOD=" + b.Period.String(),
	}
}
