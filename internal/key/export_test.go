package key

import "triprize/internal/platform/postgres"

// Waiting returns how many keys wait for a look-up.
func (v *Verifier) Waiting() int { return v.loads.Pending() }

// UsesKept is the most keys whose uses wait to be written.
const UsesKept = usesKept

// Uses is what notes uses, without a Verifier.
type Uses struct{ *uses }

// NewUses returns Uses. Close it.
func NewUses(db postgres.DB) Uses { return Uses{newUses(db)} }

// Note notes that a key is used now.
func (u Uses) Note(prefix string) { u.note(prefix) }

// Kept returns how many keys wait to be written.
func (u Uses) Kept() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.pending)
}

// Close writes what is noted and ends.
func (u Uses) Close() { u.close() }
