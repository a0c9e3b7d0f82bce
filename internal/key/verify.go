package key

import (
	"context"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
)

const (
	// cached is the most keys that a process caches, and the most unknown prefixes.
	cached = 10_000
	// unknownFor is how long a prefix is remembered as unknown. A key that is made
	// meanwhile works after this at the latest.
	unknownFor = time.Second
	// Keys are read in batches: a flood of invented ones costs one query for 256 of them.
	keysAtOnce  = 256
	keysWaiting = 8192
	// loadTimeout bounds one query.
	loadTimeout = 5 * time.Second
)

// Verifier authenticates keys. It caches known keys for a short time, so that
// not every request reads the database; a revoked key stops working everywhere
// within that time. Unknown prefixes are remembered for a second. A text that
// does not have the form of a key is rejected without a query. The last use of keys is written in
// the background, once a minute at most, for many keys in one statement.
type Verifier struct {
	known   *recent[Key]      // nil: nothing is cached
	unknown *recent[struct{}] // as known
	loads   *batch.Coalescer[string, Key]
	uses    *uses
	watched *watched
}

// CacheTTL is how long an api caches a key: a revoked one stops working everywhere within this time.
const CacheTTL = 5 * time.Second

// NewVerifier returns a Verifier that caches keys for ttl; 0 caches nothing, not even
// that a key is unknown. Close it.
func NewVerifier(db postgres.DB, ttl time.Duration) *Verifier {
	v := &Verifier{uses: newUses(db), watched: newWatched(db, ttl)}
	if ttl > 0 {
		v.known = newRecent[Key](ttl)
		v.unknown = newRecent[struct{}](min(ttl, unknownFor))
	}
	v.loads = batch.New(batch.Options{Size: keysAtOnce, InFlight: 1, Pending: keysWaiting, Timeout: loadTimeout, Whole: func(error) bool { return true }},
		func(ctx context.Context, prefixes []string) ([]Key, error) { return load(ctx, db, prefixes) })
	return v
}

// Watch calls revoked once when a key is revoked: within the time for which keys are cached, a
// second at least. While Postgres is down it calls nothing. Call stop, once.
func (v *Verifier) Watch(prefix string, revoked func()) (stop func()) {
	return v.watched.add(prefix, revoked)
}

// Close ends the queries, and writes which keys were used.
func (v *Verifier) Close() {
	v.loads.Close()
	v.uses.close()
	v.watched.close()
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
	if v.known != nil {
		if s, ok := v.known.get(prefix); ok {
			return s, nil
		}
		if _, ok := v.unknown.get(prefix); ok {
			return Key{}, nil
		}
	}
	s, err := v.loads.Do(ctx, prefix)
	if err == nil && v.known != nil {
		if s.Prefix == "" {
			v.unknown.add(prefix, struct{}{})
		} else {
			v.known.add(prefix, s)
		}
	}
	return s, err
}

// watchedLeast is the shortest time between two checks of the watched keys.
const watchedLeast = time.Second / 2

// watched are the keys of open streams. One query checks up to keysAtOnce of them, twice in the
// time for which keys are cached; without watched keys there is no query.
type watched struct {
	db   postgres.DB
	end  context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	keys map[string]map[*func()]struct{} // prefix → what to call
}

func newWatched(db postgres.DB, ttl time.Duration) *watched {
	ctx, end := context.WithCancel(context.Background())
	w := &watched{db: db, end: end, done: make(chan struct{}), keys: make(map[string]map[*func()]struct{})}
	go w.run(ctx, max(ttl/2, watchedLeast))
	return w
}

func (w *watched) close() {
	w.end()
	<-w.done
}

func (w *watched) add(prefix string, revoked func()) (stop func()) {
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

func (w *watched) run(ctx context.Context, every time.Duration) {
	defer close(w.done)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.checkAll(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// checkAll queries which watched keys are revoked. A query that fails is repeated at the next tick.
func (w *watched) checkAll(ctx context.Context) {
	w.mu.Lock()
	prefixes := make([]string, 0, len(w.keys))
	for prefix := range w.keys {
		prefixes = append(prefixes, prefix)
	}
	w.mu.Unlock()
	for some := range slices.Chunk(prefixes, keysAtOnce) {
		w.check(ctx, some)
	}
}

func (w *watched) check(ctx context.Context, prefixes []string) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	keys, err := load(ctx, w.db, prefixes)
	if err != nil {
		return
	}
	for i, key := range keys {
		if key.Prefix != "" && key.RevokedAt == nil {
			continue
		}
		w.mu.Lock()
		calls := w.keys[prefixes[i]]
		delete(w.keys, prefixes[i])
		w.mu.Unlock()
		for call := range calls {
			(*call)()
		}
	}
}

// recent caches values for a time. It has no goroutine, unlike the expirable cache of the same
// library, which wakes a hundred times in that time: an idle api would spend most of its
// processor time on it. An expired value stays until it is replaced or evicted.
type recent[V any] struct {
	entries *lru.Cache[string, dated[V]]
	ttl     time.Duration
}

type dated[V any] struct {
	value V
	until time.Time
}

func newRecent[V any](ttl time.Duration) *recent[V] {
	entries, _ := lru.New[string, dated[V]](cached) // fails only for a size of 0
	return &recent[V]{entries, ttl}
}

func (r *recent[V]) add(prefix string, value V) {
	r.entries.Add(prefix, dated[V]{value, time.Now().Add(r.ttl)})
}

func (r *recent[V]) get(prefix string) (value V, ok bool) {
	d, ok := r.entries.Get(prefix)
	return d.value, ok && time.Now().Before(d.until)
}
