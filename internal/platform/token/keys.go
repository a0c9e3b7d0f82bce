package token

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"

	"triprize/internal/platform/config"
)

// pause is the minimum time between two fetches for unknown kids, and after a failed fetch, so that tokens with
// made-up kids cannot flood the issuer.
const pause = 5 * time.Second

var (
	errNoKeys     = errors.New("no keys have been fetched yet")
	errKeyUnknown = errors.New("token is signed with an unknown key")
	errKeyUnfit   = errors.New("token is signed in a way its key is not for")
)

// keySet is a jwkset.Storage of the issuer's keys that fetches missing ones, one fetch at a time.
type keySet struct {
	*jwkset.MemoryJWKSet // the keys of the last successful fetch
	find                 keyfunc.Keyfunc
	url                  string
	timeout              time.Duration
	now                  func() time.Time
	logger               *slog.Logger
	client               *http.Client
	closed               context.Context
	stop                 context.CancelFunc
	running              sync.WaitGroup

	mu       sync.Mutex
	fetched  bool          // a fetch has succeeded
	failing  bool          // the last fetch has failed
	begun    time.Time     // of the last fetch
	fetching chan struct{} // closed at the end of the fetch that is running; nil: none
}

const (
	refreshEvery = 5 * time.Minute // a withdrawn key stays valid for at most this long, if the issuer's server answers
	fetchTimeout = 2 * time.Second // one attempt to fetch the keys
)

func newKeySet(settings config.Tokens, now func() time.Time, logger *slog.Logger) (*keySet, error) {
	k := &keySet{
		MemoryJWKSet: jwkset.NewMemoryStorage(), url: settings.JWKSURL, timeout: cmp.Or(settings.JWKSTimeout, fetchTimeout),
		now: now, logger: logger, client: newClient(),
	}
	var err error
	if k.find, err = keyfunc.New(keyfunc.Options{Storage: k}); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	k.closed, k.stop = context.WithCancel(context.Background())
	first := k.refresh(0)
	k.running.Go(func() { k.run(first, cmp.Or(settings.JWKSRefreshInterval, refreshEvery)) })
	return k, nil
}

func (k *keySet) close() {
	k.mu.Lock() // no fetch begins after this
	k.stop()
	k.mu.Unlock()
	k.running.Wait()
}

// keyOf returns the key for the kid of a token. A token without kid is rejected: trying all keys would be expensive.
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

// KeyRead returns a key, after a fetch if it is unknown.
func (k *keySet) KeyRead(ctx context.Context, id string) (jwkset.JWK, error) {
	if key, err := k.MemoryJWKSet.KeyRead(ctx, id); err == nil {
		return key, nil
	}
	if ended := k.refresh(pause); ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
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

// refresh returns when the fetch that is running ends, or one that it begins; nil: it began none, because the last one
// began within apart.
func (k *keySet) refresh(apart time.Duration) (ended <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fetching == nil && k.closed.Err() == nil && (k.begun.IsZero() || k.now().Sub(k.begun) >= apart) {
		k.begun, k.fetching = k.now(), make(chan struct{})
		k.running.Go(k.fetch)
	}
	return k.fetching
}

// run fetches the keys at intervals, and sooner after a failure.
func (k *keySet) run(ended <-chan struct{}, interval time.Duration) {
	for ended != nil {
		<-ended
		next := interval
		k.mu.Lock()
		if k.failing {
			next = min(pause, interval)
		}
		k.mu.Unlock()
		select {
		case <-k.closed.Done():
			return
		case <-time.After(next):
		}
		ended = k.refresh(0)
	}
}

// fetch replaces the keys by the published ones. After an error they are unchanged. It logs the first result and each
// change from success to failure or back.
func (k *keySet) fetch() {
	ctx, cancel := context.WithTimeout(k.closed, k.timeout)
	defer cancel()
	keys, err := download(ctx, k.client, k.url)
	if err == nil {
		err = k.KeyReplaceAll(ctx, keys)
	}
	first := !k.fetched && !k.failing // only a fetch changes them
	switch {
	case k.closed.Err() != nil:
	case err != nil && (first || !k.failing):
		k.logger.Warn("token keys could not be fetched", "error", err)
	case err == nil && (first || k.failing):
		k.logger.Info("token keys fetched", "usable", len(keys))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fetched, k.failing = k.fetched || err == nil, err != nil
	close(k.fetching)
	k.fetching = nil
}

// asymmetric are the algorithms for published keys. HS256 is not one: its "secret" would be a public key.
var asymmetric = []string{"RS256", "PS256", "ES256", "EdDSA"}

const (
	maxBody    = 1 << 20 // bytes of a key set
	maxHeaders = 64 << 10
	minRSA     = 2048 // bits; RFC 7518
)

// newClient returns an HTTP client without redirects: only the server in the setting is trusted.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// download returns the usable keys of the set at a URL (RFC 7517). An empty set withdraws all keys. An answer that is
// not a key set is an error.
func download(ctx context.Context, client *http.Client, from string) ([]jwkset.JWK, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fmt.Errorf("token.download: %w", err)
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	answer, err := client.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the URL: its query may be a secret
		}
		return nil, fmt.Errorf("token.download: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("token.download: the answer has the status %d", answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("token.download: %w", err)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("token.download: the answer has more than %d bytes", maxBody)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("token.download: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New("token.download: the answer has no member keys")
	}
	keys := make([]jwkset.JWK, 0, len(set.Keys))
	for _, text := range set.Keys {
		if key, ok := usable(text); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// usable returns a key if tokens can be verified with it. All others, also invalid ones, are skipped.
func usable(text json.RawMessage) (jwkset.JWK, bool) {
	var m jwkset.JWKMarshal
	if err := json.Unmarshal(text, &m); err != nil || m.KID == "" || m.D != "" { // d is the private key: anybody could sign
		return jwkset.JWK{}, false
	}
	if m.USE != "" && m.USE != jwkset.UseSig || len(m.KEYOPS) > 0 && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify) {
		return jwkset.JWK{}, false
	}
	m.X5U, m.X5C, m.X5T, m.X5TS256 = "", nil, "", "" // certificates add nothing: the issuer's server is trusted
	key, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return jwkset.JWK{}, false
	}
	suits := func(alg string) bool { return (m.ALG == "" || string(m.ALG) == alg) && fits(key.Key(), alg) }
	return key, slices.ContainsFunc(asymmetric, suits)
}

// fits reports whether a key can verify signatures of alg.
func fits(key any, alg string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return (alg == "RS256" || alg == "PS256") && key.N.BitLen() >= minRSA
	case *ecdsa.PublicKey:
		return alg == "ES256" && key.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return alg == "EdDSA"
	default:
		return false
	}
}
