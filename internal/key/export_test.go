package key

import "time"

func init() { loadTimeout, usesTimeout = time.Hour, time.Hour } // no machine is too slow

// Waiting returns how many keys wait for a look-up.
func (v *Verifier) Waiting() int { return v.loads.Pending() }

// Cached is the most prefixes of a kind, known or unknown, that are cached.
const Cached = cached

// UsesKept is the most keys whose uses wait to be written.
const UsesKept = usesKept

// Note notes that a key is used now.
func (v *Verifier) Note(prefix string) { v.uses.note(prefix) }

// Kept returns how many keys wait to be written.
func (v *Verifier) Kept() int {
	v.uses.mu.Lock()
	defer v.uses.mu.Unlock()
	return len(v.uses.pending)
}
