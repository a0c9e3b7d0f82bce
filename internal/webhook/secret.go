package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
)

// maxSecrets is how many secrets of an endpoint are valid at a time: each signs every
// message.
const maxSecrets = 4

// addSecret gives an endpoint a new secret. Those before sign too for overlap at most, and
// then no more; of more than [maxSecrets] the oldest end at once.
func addSecret(ctx context.Context, tx pgx.Tx, endpointID uuid.UUID, sealed []byte, overlap time.Duration) error {
	var b pgx.Batch
	b.Queue(`SELECT FROM webhook_endpoints WHERE id = $1 FOR NO KEY UPDATE`, endpointID) // two rotations are serialized
	b.Queue(`
		UPDATE webhook_secrets SET expires_at = least(expires_at, clock_timestamp() + $2 * interval '1 second')
		WHERE endpoint_id = $1`, endpointID, overlap.Seconds())
	b.Queue(`INSERT INTO webhook_secrets (id, endpoint_id, sealed) VALUES ($1, $2, $3)`, uuidv7.New(), endpointID, sealed)
	b.Queue(`
		DELETE FROM webhook_secrets WHERE endpoint_id = $1 AND (expires_at <= clock_timestamp() OR id NOT IN (
			SELECT id FROM webhook_secrets WHERE endpoint_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2))`, endpointID, maxSecrets)
	return fault.At(tx.SendBatch(ctx, &b).Close(), "webhook.addSecret(%s)", endpointID)
}

// sealedColumns are the fields of a Secret, in order.
const sealedColumns = `id, endpoint_id, sealed, created_at, expires_at`

var scanSecret = pgx.RowToStructByPos[Secret]

// Secrets returns the valid secrets of an endpoint, the newest first.
func Secrets(ctx context.Context, db postgres.DB, endpointID uuid.UUID) ([]Secret, error) {
	of, err := SecretsOf(ctx, db, []uuid.UUID{endpointID})
	return of[endpointID], err
}

// SecretsOf returns the valid secrets of endpoints, the newest first.
func SecretsOf(ctx context.Context, db postgres.DB, endpoints []uuid.UUID) (map[uuid.UUID][]Secret, error) {
	list, err := postgres.Collect(ctx, db, scanSecret, `
		SELECT `+sealedColumns+` FROM webhook_secrets
		WHERE endpoint_id = ANY($1) AND (expires_at IS NULL OR expires_at > clock_timestamp())
		ORDER BY created_at DESC, id DESC LIMIT $2`, endpoints, maxSecrets*len(endpoints))
	of := make(map[uuid.UUID][]Secret, len(endpoints))
	for _, s := range list {
		of[s.EndpointID] = append(of[s.EndpointID], s)
	}
	return of, fault.At(err, "webhook.SecretsOf")
}

// row is what a secret is sealed for: it opens for its endpoint only, and for no draw.
func row(endpointID uuid.UUID) []byte { return append([]byte("webhook endpoint "), endpointID[:]...) }

// Seal seals a secret for an endpoint.
func Seal(keys keyring.Keyring, endpointID uuid.UUID, secret string) []byte {
	return keys.Seal([]byte(secret), row(endpointID))
}

// openSecret opens a secret.
func openSecret(keys keyring.Keyring, s Secret) (string, error) {
	secret, err := keys.Open(s.Sealed, row(s.EndpointID))
	return string(secret), fault.At(err, "webhook.openSecret(%s)", s.EndpointID)
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
		page, err := postgres.Collect(ctx, db, scanSecret, `SELECT `+sealedColumns+` FROM webhook_secrets WHERE id > $1 ORDER BY id LIMIT $2`, after, batch)
		if err != nil {
			return r, fmt.Errorf("webhook.RotateSecrets: %w", err)
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
			tag, err := db.Exec(ctx, `UPDATE webhook_secrets SET sealed = $3, sealed_at = clock_timestamp() WHERE id = $1 AND sealed = $2`, s.ID, s.Sealed, sealed)
			if err != nil {
				return r, fmt.Errorf("webhook.RotateSecrets: %w", err)
			}
			r.Resealed += int(tag.RowsAffected()) // none: it is gone, or was sealed anew meanwhile
		}
		if len(page) < batch {
			return r, nil
		}
	}
}
