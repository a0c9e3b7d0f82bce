package key

import (
	"context"
	"maps"
	"sync"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

const (
	// usesEvery is how often a process writes that a key was used, at most.
	usesEvery = time.Minute
	// usesPause is the time between two writes. All keys that are due share one.
	usesPause = 5 * time.Second
	// usesKept bounds the keys that wait to be written; the uses of others are forgotten.
	usesKept = cached
)

// usesTimeout bounds a write, also the one at the end of a process; tests change it.
var usesTimeout = 2 * time.Second

// uses records in the background when keys were used: no request waits for the database. Uses that cannot be
// written wait for the next write.
type uses struct {
	db      postgres.DB
	mu      sync.Mutex
	noted   map[string]time.Time // prefix → the use that was noted last
	pending map[string]time.Time // noted and not written
}

// note notes that a key is used now, unless that was noted less than usesEvery ago.
func (u *uses) note(prefix string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if now.Sub(u.noted[prefix]) < usesEvery || len(u.pending) >= usesKept {
		return
	}
	u.noted[prefix], u.pending[prefix] = now, now
}

// write writes what is pending; after a failure it stays pending. Entries older than usesEvery
// leave the map.
func (u *uses) write(ctx context.Context) {
	u.mu.Lock()
	maps.DeleteFunc(u.noted, func(_ string, at time.Time) bool { return time.Since(at) >= usesEvery })
	batch := u.pending
	u.pending = make(map[string]time.Time)
	u.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usesTimeout)
	defer cancel()
	if recordUses(ctx, u.db, batch) == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for prefix, at := range batch {
		if _, newer := u.pending[prefix]; !newer && len(u.pending) < usesKept {
			u.pending[prefix] = at
		}
	}
}

// recordUses sets when keys were last used. It skips keys that another process has just
// recorded, and locked ones: the holder of the lock records the use too, or revokes the key.
func recordUses(ctx context.Context, db postgres.DB, at map[string]time.Time) error {
	prefixes, ages := make([]string, 0, len(at)), make([]float64, 0, len(at)) // seconds: the clock that counts is the database's
	for prefix, used := range at {
		prefixes, ages = append(prefixes, prefix), append(ages, time.Since(used).Seconds())
	}
	_, err := db.Exec(ctx, `
		WITH used AS (
			SELECT k.prefix, clock_timestamp() - u.age * interval '1 second' AS at
			FROM api_keys k JOIN unnest($1::text[], $2::float8[]) AS u (prefix, age) ON k.prefix = u.prefix
			WHERE k.last_used_at IS NULL OR k.last_used_at <= clock_timestamp() - (u.age + $3) * interval '1 second'
			FOR NO KEY UPDATE OF k SKIP LOCKED)
		UPDATE api_keys k SET last_used_at = used.at FROM used WHERE k.prefix = used.prefix`, prefixes, ages, (usesEvery / 2).Seconds())
	return fault.At(err, "key.recordUses")
}
