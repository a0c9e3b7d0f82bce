package webhooks

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/webhook"
)

// row is what a secret is sealed for: it opens for its endpoint only, and for no draw.
func row(endpointID uuid.UUID) []byte { return append([]byte("webhook endpoint "), endpointID[:]...) }

// Seal seals a secret for an endpoint.
func Seal(keys keyring.Keyring, endpointID uuid.UUID, secret string) []byte {
	return keys.Seal([]byte(secret), row(endpointID))
}

// open opens a secret.
func open(keys keyring.Keyring, s webhook.Secret) (string, error) {
	secret, err := keys.Open(s.Sealed, row(s.EndpointID))
	if err != nil {
		return "", fmt.Errorf("webhooks.Open(%s): %w", s.EndpointID, err)
	}
	return string(secret), nil
}

// Rotation is what RotateSecrets has done.
type Rotation struct {
	Checked  int         // secrets
	Resealed int         // sealed with the current key now, and with another one before
	Unopened []uuid.UUID // endpoints with a secret that no key opens; it is left as it is
}

// RotateSecrets seals the secrets of all endpoints with the current key of the ring, reading
// batch of them at a time. It may be repeated, and run beside deliveries.
func RotateSecrets(ctx context.Context, db postgres.DB, keys keyring.Keyring, batch int) (r Rotation, err error) {
	for after := uuid.Nil; ; {
		page, err := webhook.SecretsAfter(ctx, db, after, batch)
		if err != nil {
			return r, fmt.Errorf("webhooks.RotateSecrets: %w", err)
		}
		for _, s := range page {
			after = s.ID
			r.Checked++
			sealed, err := keys.Reseal(s.Sealed, row(s.EndpointID))
			if err != nil {
				r.Unopened = append(r.Unopened, s.EndpointID)
				continue
			}
			if string(sealed) == string(s.Sealed) {
				continue
			}
			done, err := webhook.Reseal(ctx, db, s.ID, s.Sealed, sealed)
			if err != nil {
				return r, fmt.Errorf("webhooks.RotateSecrets: %w", err)
			}
			if done {
				r.Resealed++
			}
		}
		if len(page) < batch {
			return r, nil
		}
	}
}
