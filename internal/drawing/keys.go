package drawing

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
)

// keyCheckRow names the row of the key check, and is its text.
var keyCheckRow = []byte("draw_key_check")

// CheckKeys returns an error with keyring.ErrOpen in its chain when keys do not open what the
// others seal. The first process of an installation decides which keys are right; later
// RotateSecrets does.
func CheckKeys(ctx context.Context, db postgres.DB, keys keyring.Keyring) error {
	sealed, err := keyCheck(ctx, db)
	if err == nil && sealed == nil {
		_, err = db.Exec(ctx, `INSERT INTO draw_key_check (sealed) VALUES ($1) ON CONFLICT DO NOTHING`, keys.Seal(keyCheckRow, keyCheckRow))
		if err == nil {
			sealed, err = keyCheck(ctx, db) // another process may have been first
		}
	}
	if err == nil {
		_, err = keys.Open(sealed, keyCheckRow)
	}
	return fault.At(err, "drawing.CheckKeys")
}

// OpenSecrets opens the key check and the secret of every unfinished campaign, and returns how many it has opened and the
// campaigns whose secret no key opens. It writes nothing.
func OpenSecrets(ctx context.Context, db postgres.DB, keys keyring.Keyring) (opened int, unopened []uuid.UUID, err error) {
	sealed, err := keyCheck(ctx, db)
	if err == nil && sealed != nil {
		_, err = keys.Open(sealed, keyCheckRow)
	}
	if err != nil {
		return 0, nil, fault.At(err, "drawing.OpenSecrets")
	}
	all, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[sealedSecret], `
		SELECT s.campaign_id, s.sealed FROM draw_secrets s JOIN campaigns c ON c.id = s.campaign_id WHERE c.state IN ('active', 'drawing')`)
	for _, s := range all {
		if _, bad := keys.Open(s.Sealed, s.CampaignID[:]); bad != nil {
			unopened = append(unopened, s.CampaignID)
		}
	}
	return len(all) - len(unopened), unopened, fault.At(err, "drawing.OpenSecrets")
}

// Rewrite writes the key check as it is: a commit without another effect, by which somebody sees whether Postgres writes.
func Rewrite(ctx context.Context, db postgres.DB) error {
	_, err := db.Exec(ctx, `UPDATE draw_key_check SET sealed = sealed`)
	return fault.At(err, "drawing.Rewrite")
}

// rotateCheck seals the key check with the current key. It is left as it is when these keys
// open no secret of any campaign, and not the check either: then they are wrong.
func (r *Rotation) rotateCheck(ctx context.Context, db postgres.DB, keys keyring.Keyring) error {
	if r.Checked == len(r.Unopened) {
		sealed, err := keyCheck(ctx, db)
		if err != nil {
			return err
		}
		if _, err := keys.Open(sealed, keyCheckRow); sealed != nil && err != nil {
			return nil //nolint:nilerr // it is no failure, but the reason
		}
	}
	_, err := db.Exec(ctx, `INSERT INTO draw_key_check (sealed) VALUES ($1) ON CONFLICT (one) DO UPDATE SET sealed = excluded.sealed`, keys.Seal(keyCheckRow, keyCheckRow))
	return fault.At(err, "drawing.rotateCheck")
}

// keyCheck returns the sealed text that shows whether a key is the right one; nil: there is
// none yet.
func keyCheck(ctx context.Context, db postgres.DB) (sealed []byte, err error) {
	err = db.QueryRow(ctx, `SELECT sealed FROM draw_key_check`).Scan(&sealed)
	_, err = postgres.Found(err)
	return sealed, fault.At(err, "drawing.keyCheck")
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
		page, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[sealedSecret],
			`SELECT campaign_id, sealed FROM draw_secrets WHERE campaign_id > $1 ORDER BY campaign_id LIMIT $2`, after, batch)
		if err != nil {
			return r, fmt.Errorf("drawing.RotateSecrets: %w", err)
		}
		if err := r.rotate(ctx, db, keys, page); err != nil {
			return r, err
		}
		if len(page) < batch {
			return r, r.rotateCheck(ctx, db, keys)
		}
		after = page[len(page)-1].CampaignID
	}
}

// sealedSecret is the encrypted secret of a campaign.
type sealedSecret struct {
	CampaignID uuid.UUID
	Sealed     []byte
}

// rotate seals one batch.
func (r *Rotation) rotate(ctx context.Context, db postgres.DB, keys keyring.Keyring, page []sealedSecret) error {
	var ids []uuid.UUID
	var before, anew [][]byte
	for _, s := range page {
		sealed, err := keys.Reseal(s.Sealed, s.CampaignID[:])
		if err != nil {
			r.Unopened = append(r.Unopened, s.CampaignID)
			continue
		}
		if !bytes.Equal(sealed, s.Sealed) {
			ids, before, anew = append(ids, s.CampaignID), append(before, s.Sealed), append(anew, sealed)
		}
	}
	tag, err := db.Exec(ctx, `
		UPDATE draw_secrets s SET sealed = r.sealed, sealed_at = clock_timestamp()
		FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS r (id, old, sealed)
		WHERE s.campaign_id = r.id AND s.sealed = r.old`, ids, before, anew) // a secret that has changed meanwhile stays
	r.Checked, r.Resealed = r.Checked+len(page), r.Resealed+int(tag.RowsAffected())
	return fault.At(err, "drawing.RotateSecrets")
}

// InsertSecret stores the encrypted secret of a campaign at its publication.
func InsertSecret(ctx context.Context, tx pgx.Tx, id uuid.UUID, sealed []byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO draw_secrets (campaign_id, sealed) VALUES ($1, $2)`, id, sealed)
	return fault.At(err, "drawing.InsertSecret(%s)", id)
}

// SecretOf returns the encrypted secret of a published campaign.
func SecretOf(ctx context.Context, db postgres.DB, id uuid.UUID) (sealed []byte, err error) {
	err = db.QueryRow(ctx, `SELECT sealed FROM draw_secrets WHERE campaign_id = $1`, id).Scan(&sealed)
	return sealed, fault.At(err, "drawing.SecretOf(%s)", id)
}
