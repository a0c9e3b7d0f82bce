package key

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
)

const (
	// cached is the most prefixes that a process caches: as many known ones as unknown ones.
	cached = 10_000
	// unknownFor is how long a prefix is remembered as unknown. A key that is made
	// meanwhile works after this at the latest.
	unknownFor = time.Second
	// Keys are read in batches: a flood of invented ones costs one query for 256 of them.
	keysAtOnce  = 256
	keysWaiting = 8192
	// watchedLeast is the shortest time between two checks of the watched keys.
	watchedLeast = time.Second / 2
)

// loadTimeout bounds one query; tests change it.
var loadTimeout = 5 * time.Second

// Verifier authenticates keys. It caches known keys for a short time, so that
// not every request reads the database; a revoked key stops working everywhere
// within that time. Unknown prefixes are remembered for a second. A text that
// does not have the form of a key is rejected without a query. The last use of keys is written in
// the background, once a minute at most, for many keys in one statement.
type Verifier struct {
	db         postgres.DB
	ttl        time.Duration
	keys       *lru.Cache[string, cachedKey] // by prefix
	missing    *lru.Cache[string, cachedKey] // unknown prefixes, apart: a flood of them forgets no key
	loads      *batch.Coalescer[string, Key]
	uses       uses
	watched    watched
	background sync.WaitGroup
	end        context.CancelFunc
}

// cachedKey is a key, or that there is none. Without the expirable cache of the same library, which wakes a
// hundred times in the time of an entry: an idle api would spend most of its processor time on it.
type cachedKey struct {
	key   Key
	until time.Time
}

// CacheTTL is how long an api caches a key: a revoked one stops working everywhere within this time.
const CacheTTL = 5 * time.Second

// NewVerifier returns a Verifier that caches keys for ttl; 0 caches nothing, not even
// that a key is unknown. Close it.
func NewVerifier(db postgres.DB, ttl time.Duration) *Verifier {
	ctx, end := context.WithCancel(context.Background())
	keys, _ := lru.New[string, cachedKey](cached) // fails only for a size of 0
	missing, _ := lru.New[string, cachedKey](cached)
	v := &Verifier{db: db, ttl: ttl, keys: keys, missing: missing, end: end, uses: uses{db: db, noted: make(map[string]time.Time), pending: make(map[string]time.Time)},
		watched: watched{keys: make(map[string]map[*func()]struct{})}}
	v.loads = batch.New(batch.Options{Size: keysAtOnce, InFlight: 1, Pending: keysWaiting, Timeout: loadTimeout, Whole: func(error) bool { return true }},
		func(ctx context.Context, prefixes []string) ([]Key, error) { return load(ctx, db, prefixes) })
	v.background.Go(func() { every(ctx, max(ttl/2, watchedLeast), v.checkWatched) })
	v.background.Go(func() { every(ctx, usesPause, v.uses.write) })
	return v
}

// every does something at an interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			do(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the queries, and writes which keys were used.
func (v *Verifier) Close() {
	v.loads.Close()
	v.end()
	v.background.Wait()
	v.uses.write(context.Background())
}

// Verify returns the key whose text is given, or an unauthenticated Error.
func (v *Verifier) Verify(ctx context.Context, text string) (Key, error) {
	prefix, secret, ok := split(text)
	if !ok {
		return Key{}, errUnknown
	}
	k, err := v.find(ctx, prefix)
	if err != nil {
		return Key{}, err
	}
	if !k.admits(secret) {
		return Key{}, errUnknown
	}
	v.uses.note(prefix)
	return k, nil
}

// find returns the key with a prefix; one that does not exist admits no secret.
func (v *Verifier) find(ctx context.Context, prefix string) (Key, error) {
	for _, cache := range []*lru.Cache[string, cachedKey]{v.keys, v.missing} {
		if c, ok := cache.Get(prefix); ok && time.Now().Before(c.until) {
			return c.key, nil
		}
	}
	k, err := v.loads.Do(ctx, prefix)
	if err == nil {
		cache, ttl := v.keys, v.ttl
		if k.Prefix == "" {
			cache, ttl = v.missing, min(ttl, unknownFor)
		}
		cache.Add(prefix, cachedKey{k, time.Now().Add(ttl)})
	}
	return k, err
}

// watched are the keys of open streams. One query checks up to keysAtOnce of them, twice in the
// time for which keys are cached; without watched keys there is no query.
type watched struct {
	mu   sync.Mutex
	keys map[string]map[*func()]struct{} // prefix → what to call
}

// Watch calls revoked once when a key is revoked: within the time for which keys are cached, a
// second at least. While Postgres is down it calls nothing. Call stop, once.
func (v *Verifier) Watch(prefix string, revoked func()) (stop func()) {
	w := &v.watched
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[prefix] == nil {
		w.keys[prefix] = make(map[*func()]struct{})
	}
	w.keys[prefix][&revoked] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.keys[prefix], &revoked); len(w.keys[prefix]) == 0 {
			delete(w.keys, prefix)
		}
	}
}

// checkWatched queries which watched keys are revoked. A query that fails is repeated the next time.
func (v *Verifier) checkWatched(ctx context.Context) {
	w := &v.watched
	w.mu.Lock()
	prefixes := slices.Collect(maps.Keys(w.keys))
	w.mu.Unlock()
	for some := range slices.Chunk(prefixes, keysAtOnce) {
		keys, err := v.loadInTime(ctx, some)
		if err != nil {
			continue
		}
		for i, key := range keys {
			if key.Prefix != "" && key.RevokedAt == nil {
				continue
			}
			w.mu.Lock()
			calls := w.keys[some[i]]
			delete(w.keys, some[i])
			w.mu.Unlock()
			for call := range calls {
				(*call)()
			}
		}
	}
}

func (v *Verifier) loadInTime(ctx context.Context, prefixes []string) ([]Key, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	return load(ctx, v.db, prefixes)
}
