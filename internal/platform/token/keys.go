package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"

	"triprize/internal/platform/config"
)

// pause is the shortest time between two fetches for unknown kids, and after a
// failed fetch: tokens with made-up kids must not become requests to the issuer.
const pause = 5 * time.Second

var (
	errNoKeys     = errors.New("no keys have been fetched yet")
	errKeyUnknown = errors.New("token is signed with an unknown key")
	errKeyUnfit   = errors.New("token is signed in a way its key is not for")
)

// keySet has the issuer's keys. It is a jwkset.Storage that fetches missing keys;
// one goroutine does all fetching.
type keySet struct {
	*jwkset.MemoryJWKSet // the keys of the last good fetch
	find                 keyfunc.Keyfunc
	url                  string
	interval, timeout    time.Duration
	now                  func() time.Time
	logger               *slog.Logger
	client               *http.Client

	asked  chan struct{} // a token has an unknown kid: fetch now
	closed context.Context
	stop   context.CancelFunc
	runner sync.WaitGroup

	mu      sync.Mutex
	fetched bool          // there was a good fetch
	running bool          // a fetch is under way
	begun   time.Time     // when the last one began
	ended   chan struct{} // closed when the next one ends
}

const (
	refreshEvery = 5 * time.Minute // a key that the issuer withdrew stops working within this, if the issuer's server answers
	fetchTimeout = 2 * time.Second // one attempt to fetch the keys
)

func newKeySet(settings config.Tokens, now func() time.Time, logger *slog.Logger) (*keySet, error) {
	k := &keySet{
		MemoryJWKSet: jwkset.NewMemoryStorage(), url: settings.JWKSURL,
		interval: cmp.Or(settings.JWKSRefreshInterval, refreshEvery), timeout: cmp.Or(settings.JWKSTimeout, fetchTimeout),
		now: now, logger: logger, client: newClient(), asked: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	var err error
	if k.find, err = keyfunc.New(keyfunc.Options{Storage: k}); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	k.closed, k.stop = context.WithCancel(context.Background())
	k.runner.Go(func() { k.run(k.closed) })
	return k, nil
}

func (k *keySet) close() {
	k.stop()
	k.runner.Wait()
}

// keyOf returns the key that a token names by its kid. A token without one is
// refused: trying all keys would cost a verification each, and let the token choose.
func (k *keySet) keyOf(ctx context.Context, t *jwt.Token) (any, error) {
	if id, _ := t.Header[jwkset.HeaderKID].(string); id == "" {
		return nil, errKeyUnknown
	}
	key, err := k.find.KeyfuncCtx(ctx)(t)
	if err != nil {
		return nil, err
	}
	if !fits(key, t.Method.Alg()) {
		return nil, errKeyUnfit
	}
	return key, nil
}

// KeyRead returns a key, after a fetch if it is not known yet.
func (k *keySet) KeyRead(ctx context.Context, id string) (jwkset.JWK, error) {
	if key, err := k.MemoryJWKSet.KeyRead(ctx, id); err == nil {
		return key, nil
	}
	k.refresh(ctx)
	if key, err := k.MemoryJWKSet.KeyRead(ctx, id); err == nil {
		return key, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.fetched {
		return jwkset.JWK{}, errNoKeys
	}
	return jwkset.JWK{}, errKeyUnknown
}

// refresh waits for the fetch that is under way, or starts one and waits for it.
// Within pause of the last one it does neither. If another fetch has begun in the
// meantime, the request for a new one is dropped: the end of that fetch wakes all
// who wait.
func (k *keySet) refresh(ctx context.Context) {
	k.mu.Lock()
	running, mayFetch, ended := k.running, k.mayFetch(), k.ended
	k.mu.Unlock()
	if !running && !mayFetch {
		return
	}
	if !running {
		select {
		case k.asked <- struct{}{}:
		default:
		}
	}
	select {
	case <-ended:
	case <-ctx.Done():
	case <-k.closed.Done():
	}
}

// mayFetch tells whether a fetch for an unknown kid may begin. The caller holds mu.
func (k *keySet) mayFetch() bool { return k.begun.IsZero() || k.now().Sub(k.begun) >= pause }

func (k *keySet) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.asked:
			k.mu.Lock()
			mayFetch := k.mayFetch()
			k.mu.Unlock()
			if !mayFetch {
				continue
			}
		}
		n, err := k.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		if first || failing != (err != nil) {
			k.report(ctx, n, err)
		}
		failing = err != nil
		k.end(!failing)
		if failing {
			timer.Reset(min(pause, k.interval))
		} else {
			timer.Reset(k.interval)
		}
	}
}

// fetch replaces the keys by those that the issuer publishes now, and returns how
// many there are. An error leaves the keys unchanged.
func (k *keySet) fetch(ctx context.Context) (int, error) {
	k.mu.Lock()
	k.running, k.begun = true, k.now()
	k.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	keys, err := download(limited, k.client, k.url)
	if err != nil {
		return 0, err
	}
	return len(keys), k.KeyReplaceAll(ctx, keys)
}

// report logs the first result of fetching, and each change of it.
func (k *keySet) report(ctx context.Context, n int, err error) {
	if err != nil {
		k.logger.WarnContext(ctx, "token keys could not be fetched", "error", err)
		return
	}
	k.logger.InfoContext(ctx, "token keys fetched", "usable", n)
}

// end wakes all who wait for the fetch.
func (k *keySet) end(good bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running, k.fetched = false, k.fetched || good
	close(k.ended)
	k.ended = make(chan struct{})
}
