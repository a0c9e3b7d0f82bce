package apikey

import (
	"context"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"
	"golang.org/x/sync/singleflight"

	"triprize/internal/platform/postgres"
)

// cached is the most keys that a process caches.
const cached = 10_000

// Verifier authenticates keys. It caches known keys for a short time, so that
// not every request reads the database; a revoked key stops working everywhere
// within that time. Unknown prefixes are not cached.
type Verifier struct {
	db      postgres.DB
	known   *expirable.LRU[string, stored]
	loading singleflight.Group
}

// NewVerifier returns a Verifier that caches keys for ttl; 0 caches nothing.
func NewVerifier(db postgres.DB, ttl time.Duration) *Verifier {
	v := &Verifier{db: db}
	if ttl > 0 {
		v.known = expirable.NewLRU[string, stored](cached, nil, ttl)
	}
	return v
}

// Verify returns the key whose text is given, or an unauthenticated Error.
func (v *Verifier) Verify(ctx context.Context, text string) (Key, error) {
	prefix, secret, ok := split(text)
	if !ok {
		return Key{}, errUnknown()
	}
	s, err := v.find(ctx, prefix)
	if err != nil {
		return Key{}, err
	}
	if !s.admits(secret) {
		return Key{}, errUnknown()
	}
	return s.Key, nil
}

func (v *Verifier) find(ctx context.Context, prefix string) (stored, error) {
	if v.known != nil {
		if s, ok := v.known.Get(prefix); ok {
			return s, nil
		}
	}
	loaded, err, _ := v.loading.Do(prefix, func() (any, error) {
		s, err := load(ctx, v.db, prefix)
		if err == nil && v.known != nil {
			v.known.Add(prefix, s)
		}
		return s, err
	})
	if err != nil {
		return stored{}, err
	}
	return loaded.(stored), nil //nolint:forcetypeassert // the closure above returns nothing else
}
