package apikey

import (
	"context"
	"slices"
	"sync"
	"time"

	"triprize/internal/platform/postgres"
)

// watchedLeast is the time between two looks at the watched keys at least.
const watchedLeast = time.Second / 2

// watched are the keys of open streams. One query looks at up to keysAtOnce of them, twice in the
// time for which keys are cached; when nobody watches, nothing is asked.
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
			w.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// look asks which watched keys are revoked. A query that fails is repeated at the next look.
func (w *watched) look(ctx context.Context) {
	w.mu.Lock()
	prefixes := make([]string, 0, len(w.keys))
	for prefix := range w.keys {
		prefixes = append(prefixes, prefix)
	}
	w.mu.Unlock()
	for some := range slices.Chunk(prefixes, keysAtOnce) {
		w.lookAt(ctx, some)
	}
}

func (w *watched) lookAt(ctx context.Context, prefixes []string) {
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
