package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"triprize/api"
	"triprize/internal/key"
	"triprize/internal/platform/openapi"
	"triprize/internal/platform/ratelimit"
)

// gcPercent is the GC percentage that package boot sets for the api.
const gcPercent = 180

// runGuard measures what the api does with a purchase before its handler: verify the
// API key, check path, headers and body against the contract, and apply the rate limit
// of the user. Each request has another user. The rate shows which share of the cost of
// a purchase this is.
func runGuard(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot, func(sys *system) (r result, err error) {
		limits := sys.settings.Limits
		limits.ClientRate, limits.ClientBurst = 1_000_000, 1_000_000 // one client asks faster than the default allows
		limiter := ratelimit.New(s.redis, sys.settings.Redis.Namespace, limits, nil)
		defer limiter.Close()
		document, err := openapi.Load(api.OpenAPI, nil)
		if err != nil {
			return r, err
		}
		i := slices.IndexFunc(document.Operations, func(o openapi.Operation) bool { return o.ID == "requestPurchase" })
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
		keys := key.NewVerifier(sys.pool, key.CacheTTL) //nolint:contextcheck // uses are written when no request waits
		defer keys.Close()                              //nolint:contextcheck // the last uses are written after ctx has ended
		w := newWindow(&meter{groups: s.groups()})
		return w.repeat(ctx, measured, connections, func(int) caller {
			return func() (bool, error) {
				return true, pass(ctx, keys, s.appKey, &document.Operations[i], limiter, sys.campaigns[0])
			}
		})
	})
}

// pass runs all checks on one request.
func pass(ctx context.Context, keys *key.Verifier, key string, operation *openapi.Operation, limiter *ratelimit.Limiter, campaignID uuid.UUID) error {
	known, err := keys.Verify(ctx, key)
	if err != nil {
		return err
	}
	user := "user-" + strings.ReplaceAll(uuid.NewString(), "-", "")
	faults, nowhere := operation.CheckParameters(func(in, name string) (text string, sent bool) {
		switch {
		case in == "path":
			return campaignID.String(), true
		case name == "Idempotency-Key":
			return user, true
		default:
			return "", false
		}
	})
	if len(faults) > 0 || nowhere {
		return fmt.Errorf("parameters: %v", faults)
	}
	if verdict := limiter.Client(ctx, known.Client); !verdict.Allowed {
		return errors.New("limited")
	}
	body := []byte(`{"user_id":"` + user + `","selection":{"quantity":1},"payment":{"method":"external"}}`)
	if _, _, faults, err = operation.ReadBody(body, nil); err != nil || len(faults) > 0 {
		return fmt.Errorf("body: %v %w", faults, err)
	}
	if verdict := limiter.User(ctx, known.Client, user); !verdict.Allowed {
		return errors.New("limited")
	}
	return nil
}
