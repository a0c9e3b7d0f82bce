package beacon

import (
	"encoding/hex"
	"errors"
	"testing"
	"time"
)

func TestPublishedRoundsOfQuicknetVerifyAndNoOthers(t *testing.T) {
	t.Parallel()
	chain := Quicknet()
	if hash := chain.Hash(); hex.EncodeToString(hash[:]) != "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971" {
		t.Errorf("the chain hash is %x", hash)
	}
	for _, known := range []struct {
		round                 uint64
		signature, randomness string
	}{
		{657413, "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b", "fc1873a13f3545aeade8401532ef5519920652eee6b0d2b19ca12643b87b3587"},
		{123, "b75c69d0b72a5d906e854e808ba7e2accb1542ac355ae486d591aa9d43765482e26cd02df835d3546d23c4b13e0dfc92", "fb8f7bc29bf24db51871ec8c79f3a1e4bd0557bc0dfcee9ed1d924e69d1c60dc"},
	} {
		round, err := chain.Verify(known.round, mustHex(known.signature))
		if err != nil || hex.EncodeToString(round.Randomness[:]) != known.randomness {
			t.Errorf("round %d: %x, %v", known.round, round.Randomness, err)
		}
		if _, err := chain.Verify(known.round+1, mustHex(known.signature)); !errors.Is(err, ErrSignature) {
			t.Errorf("the signature of round %d passes for the next: %v", known.round, err)
		}
	}
}

func TestARoundIsDueWhenTheChainSaysSo(t *testing.T) {
	t.Parallel()
	chain := Quicknet()
	genesis := time.Unix(chain.GenesisTime, 0)
	for after, want := range map[time.Duration]uint64{-1: 0, 0: 1, 3*time.Second - 1: 1, 3 * time.Second: 2, time.Hour: 1201} {
		if got := chain.RoundAt(genesis.Add(after)); got != want {
			t.Errorf("%s after the genesis: round %d, want %d", after, got, want)
		}
	}
	if due := chain.DueAt(1201); !due.Equal(genesis.Add(time.Hour)) {
		t.Errorf("round 1201 is due at %s", due)
	}
}
