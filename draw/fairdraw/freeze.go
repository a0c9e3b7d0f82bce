package fairdraw

import (
	"crypto/sha256"

	"github.com/google/uuid"
)

// The distance of a beacon's round from the one that was newest when the list was frozen.
// The record is public before anybody can know its round.
const (
	RoundsAhead     = 10
	MostRoundsAhead = 30 // with a clock that is wrong by more, nothing is frozen
)

// FreezeRecord is what the draw will be made from: the sold list, as its root, and where
// its randomness will come from. It is public from its commit on.
type FreezeRecord struct {
	Version    string    `json:"version"`
	CampaignID uuid.UUID `json:"campaign_id"`
	Commitment Hash      `json:"commitment"`
	Root       Hash      `json:"root"`
	Count      int       `json:"count"` // leaves under the root
	FrozenAt   Instant   `json:"frozen_at"`
	Round      *uint64   `json:"round"`  // of the beacon; nil: no beacon
	Secret     *Hash     `json:"secret"` // revealed here with a beacon; else with the result
}

// Canonical returns the record as RFC 8785 canonical JSON, the bytes that FreezeHash takes.
func (r FreezeRecord) Canonical() ([]byte, error) { return canonical(r) }

// FreezeHash returns H("triprize-draw/1 freeze" || 0x00 || record): what people note before
// the round is due.
func FreezeHash(record []byte) Hash {
	return sha256.Sum256(append([]byte(Version+" freeze\x00"), record...))
}
