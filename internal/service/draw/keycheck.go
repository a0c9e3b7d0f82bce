package draw

import (
	"context"
	"fmt"

	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/drawrecord"
)

// keyCheckRow names the row of the key check, and is its text.
var keyCheckRow = []byte("draw_key_check")

// CheckKeys returns an error with keyring.ErrOpen in its chain when keys do not open what the
// others seal. The first process of an installation decides which keys are right; later
// RotateSecrets does.
func CheckKeys(ctx context.Context, db postgres.DB, keys keyring.Keyring) error {
	sealed, err := drawrecord.KeyCheck(ctx, db)
	if err == nil && sealed == nil {
		if err = drawrecord.InsertKeyCheck(ctx, db, keys.Seal(keyCheckRow, keyCheckRow)); err == nil {
			sealed, err = drawrecord.KeyCheck(ctx, db) // another process may have been first
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
		sealed, err := drawrecord.KeyCheck(ctx, db)
		if err != nil {
			return err
		}
		if _, err := keys.Open(sealed, keyCheckRow); sealed != nil && err != nil {
			return nil //nolint:nilerr // it is no failure, but the reason
		}
	}
	return drawrecord.ReplaceKeyCheck(ctx, db, keys.Seal(keyCheckRow, keyCheckRow))
}
