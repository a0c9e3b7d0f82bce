package token

import (
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

// pause is the least time between two fetches out of turn, and from a failed
// fetch to the next: tokens with made-up kids must not become requests to the issuer.
const pause = 5 * time.Second

var (
	errNoKeys     = errors.New("no keys have been fetched yet")
	errKeyUnknown = errors.New("token is signed with an unknown key")
	errKeyUnfit   = errors.New("token is signed in a way its key is not for")
)

// keySet has the issuer's keys. It is a jwkset.Storage that fetches what it does
// not have; one goroutine does all fetching.
type keySet struct {
	*jwkset.MemoryJWKSet // what the last good fetch brought
	find                 keyfunc.Keyfunc
	url                  string
	interval, timeout    time.Duration
	now                  func() time.Time
	logger               *slog.Logger
	client               *http.Client

	asked  chan struct{} // somebody wants a fetch out of turn
	closed context.Context
	stop   context.CancelFunc
	runner sync.WaitGroup

	mu      sync.Mutex
	fetched bool          // a fetch was good, once
	running bool          // a fetch is under way
	begun   time.Time     // when the last one was begun
	ended   chan struct{} // closed when the next one ends
}

func newKeySet(settings config.Tokens, now func() time.Time, logger *slog.Logger) (*keySet, error) {
	if settings.JWKSRefreshInterval <= 0 || settings.JWKSTimeout <= 0 {
		return nil, errors.New("keys: jwks_refresh_interval and jwks_timeout must be positive")
	}
	k := &keySet{
		MemoryJWKSet: jwkset.NewMemoryStorage(), url: settings.JWKSURL, interval: settings.JWKSRefreshInterval, timeout: settings.JWKSTimeout,
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

// of returns the key that a token names. Without a name there is none: trying
// them all would cost a signature each, and let a token choose what it fits.
func (k *keySet) of(ctx context.Context, t *jwt.Token) (any, error) {
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

// KeyRead returns a key, after a fetch if need be.
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

// refresh waits for the fetch that is under way, or for a new one; so soon after
// the last that there may be none, it does not wait. An ask that comes too late
// is dropped: the fetch that was begun instead wakes whoever waits.
func (k *keySet) refresh(ctx context.Context) {
	k.mu.Lock()
	running, may, ended := k.running, k.rested(), k.ended
	k.mu.Unlock()
	if !running && !may {
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

// rested tells whether a fetch out of turn may begin. The caller holds mu.
func (k *keySet) rested() bool { return k.begun.IsZero() || k.now().Sub(k.begun) >= pause }

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
			may := k.rested()
			k.mu.Unlock()
			if !may {
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

// fetch replaces the keys by those the issuer publishes now, and returns how
// many there are. After an error they are as they were.
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

// report logs how fetching goes, when that changes.
func (k *keySet) report(ctx context.Context, n int, err error) {
	if err != nil {
		k.logger.WarnContext(ctx, "token keys could not be fetched", "error", err)
		return
	}
	k.logger.InfoContext(ctx, "token keys fetched", "usable", n)
}

// end wakes whoever waits for the fetch.
func (k *keySet) end(good bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running, k.fetched = false, k.fetched || good
	close(k.ended)
	k.ended = make(chan struct{})
}
