package drawing

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
)

// keyCheckRow names the row of the key check, and is its text.
var keyCheckRow = []byte("draw_key_check")

// CheckKeys returns an error with keyring.ErrOpen in its chain when keys do not open what the
// others seal. The first process of an installation decides which keys are right; later
// RotateSecrets does.
func CheckKeys(ctx context.Context, db postgres.DB, keys keyring.Keyring) error {
	sealed, err := KeyCheck(ctx, db)
	if err == nil && sealed == nil {
		if err = InsertKeyCheck(ctx, db, keys.Seal(keyCheckRow, keyCheckRow)); err == nil {
			sealed, err = KeyCheck(ctx, db) // another process may have been first
		}
	}
	if err == nil {
		_, err = keys.Open(sealed, keyCheckRow)
	}
	if err != nil {
		return fmt.Errorf("draw.CheckKeys: %w", err)
	}
	return nil
}

// rotateCheck seals the key check with the current key. It is left as it is when these keys
// open no secret of any campaign, and not the check either: then they are wrong.
func (r *Rotation) rotateCheck(ctx context.Context, db postgres.DB, keys keyring.Keyring) error {
	if r.Checked == len(r.Unopened) {
		sealed, err := KeyCheck(ctx, db)
		if err != nil {
			return err
		}
		if _, err := keys.Open(sealed, keyCheckRow); sealed != nil && err != nil {
			return nil //nolint:nilerr // it is no failure, but the reason
		}
	}
	return ReplaceKeyCheck(ctx, db, keys.Seal(keyCheckRow, keyCheckRow))
}

// Rotation is what RotateSecrets has done.
type Rotation struct {
	Checked  int         // secrets
	Resealed int         // sealed with the current key now, and with another one before
	Unopened []uuid.UUID // campaigns whose secret no key opens; they are left as they are
}

// RotateSecrets seals every secret, and the key check, with the current key of the ring, at
// most batch secrets at a time. It may be repeated, and run beside others and beside draws: a secret
// that has changed meanwhile is left for the next run.
func RotateSecrets(ctx context.Context, db postgres.Pool, keys keyring.Keyring, batch int) (r Rotation, err error) {
	for after := uuid.Nil; ; {
		page, err := SecretsAfter(ctx, db, after, batch)
		if err != nil {
			return r, fmt.Errorf("draw.RotateSecrets: %w", err)
		}
		if err := r.rotate(ctx, db, keys, page); err != nil {
			return r, fmt.Errorf("draw.RotateSecrets: %w", err)
		}
		if len(page) < batch {
			return r, r.rotateCheck(ctx, db, keys)
		}
		after = page[len(page)-1].CampaignID
	}
}

// rotate seals one batch.
func (r *Rotation) rotate(ctx context.Context, db postgres.Pool, keys keyring.Keyring, page []Sealed) error {
	var old []Sealed
	var anew [][]byte
	for _, s := range page {
		sealed, err := keys.Reseal(s.Sealed, s.CampaignID[:])
		if err != nil {
			r.Unopened = append(r.Unopened, s.CampaignID)
			continue
		}
		if string(sealed) != string(s.Sealed) {
			old, anew = append(old, s), append(anew, sealed)
		}
	}
	resealed, err := ReplaceSecrets(ctx, db, old, anew)
	if err != nil {
		return err
	}
	r.Checked, r.Resealed = r.Checked+len(page), r.Resealed+resealed
	return nil
}
