package fleet

import (
	"slices"
	"strings"
	"time"

	"triprize/sandbox/drandsim"
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
	b := &s.Settings.Beacon
	b.Relays, b.ChainInfo = strings.Join(s.Beacon.URLs(), ","), chain.Info().String()
	return []string{"TRIPRIZE_BEACON_RELAYS=" + b.Relays, "TRIPRIZE_BEACON_CHAIN=" + b.ChainInfo}
}
