package drawing

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// KeepChain stores a chain that a campaign binds itself to, once.
func KeepChain(ctx context.Context, tx pgx.Tx, c beacon.Chain) error {
	hash := c.Hash()
	_, err := tx.Exec(ctx, `
		INSERT INTO beacon_chains (chain_hash, public_key, genesis_time, genesis_seed, beacon_id, period_s)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		hash[:], c.PublicKey, c.GenesisTime, c.GenesisSeed, c.ID, c.PeriodS)
	return fault.At(err, "drawrecord.KeepChain(%x)", hash)
}

// ChainOf returns the chain of a hash, or false when no campaign has bound itself to it.
func ChainOf(ctx context.Context, db postgres.DB, hash fairdraw.Hash) (c beacon.Chain, ok bool, err error) {
	err = db.QueryRow(ctx, `SELECT public_key, genesis_time, genesis_seed, beacon_id, period_s FROM beacon_chains WHERE chain_hash = $1`, hash[:]).
		Scan(&c.PublicKey, &c.GenesisTime, &c.GenesisSeed, &c.ID, &c.PeriodS)
	ok, err = postgres.Found(err)
	return c, ok, fault.At(err, "drawrecord.ChainOf(%s)", hash)
}

// KeepRound stores a round that beacon.Chain.Verify has returned, once.
func KeepRound(ctx context.Context, db postgres.DB, chain fairdraw.Hash, r beacon.Round) error {
	_, err := db.Exec(ctx, `INSERT INTO beacon_rounds (chain_hash, round, signature, randomness) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
		chain[:], r.Number, r.Signature, r.Randomness[:])
	return fault.At(err, "drawrecord.KeepRound(%s, %d)", chain, r.Number)
}

// mostRows is how many rows of a round are read, or newer than one: to verify one takes 7 to 18 ms.
const mostRows = 16

// RoundOf returns the stored round that verifies, or false.
func RoundOf(ctx context.Context, db postgres.DB, chain beacon.Chain, number uint64) (beacon.Round, bool, error) {
	stored, err := RowsOf(ctx, db, chain.Hash(), number)
	if err != nil {
		return beacon.Round{}, false, err
	}
	r, ok := firstTrue(chain, stored)
	return r, ok, nil
}

// NewestRound returns the newest stored round of a chain that verifies, or known if none is newer.
func NewestRound(ctx context.Context, db postgres.DB, chain beacon.Chain, known beacon.Round) (beacon.Round, error) {
	hash := chain.Hash()
	stored, err := rounds(ctx, db, `round > $2 ORDER BY round DESC LIMIT $3`, hash[:], known.Number, mostRows)
	if err != nil {
		return known, err
	}
	if newer, ok := firstTrue(chain, stored); ok {
		return newer, nil
	}
	return known, nil
}

func firstTrue(chain beacon.Chain, stored []beacon.Round) (beacon.Round, bool) {
	for _, r := range stored {
		if verified, err := chain.Verify(r.Number, r.Signature); err == nil {
			return verified, true
		}
	}
	return beacon.Round{}, false
}

// RowsOf returns what is stored of a round, false rows too.
func RowsOf(ctx context.Context, db postgres.DB, chain fairdraw.Hash, number uint64) ([]beacon.Round, error) {
	return rounds(ctx, db, `round = $2 ORDER BY stored_at LIMIT $3`, chain[:], number, mostRows)
}

// RoundWith returns the stored round that has a randomness, or false. Nothing is verified: a verified
// round, or a draw, has it.
func RoundWith(ctx context.Context, db postgres.DB, chain fairdraw.Hash, number uint64, randomness []byte) (r beacon.Round, ok bool, err error) {
	found, err := rounds(ctx, db, `round = $2 AND randomness = $3 LIMIT 1`, chain[:], number, randomness)
	if err != nil || len(found) == 0 {
		return r, false, err
	}
	return found[0], true, nil
}

func rounds(ctx context.Context, db postgres.DB, which string, args ...any) ([]beacon.Round, error) {
	found, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (r beacon.Round, err error) {
		var randomness []byte
		if err = row.Scan(&r.Number, &r.Signature, &randomness); err == nil {
			r.Randomness = [sha256.Size]byte(randomness) // a CHECK says so
		}
		return r, err
	}, `SELECT round, signature, randomness FROM beacon_rounds WHERE chain_hash = $1 AND `+which, args...)
	return found, fault.At(err, "drawrecord.rounds")
}

// InsertSecret stores the encrypted secret of a campaign at its publication.
func InsertSecret(ctx context.Context, tx pgx.Tx, id uuid.UUID, sealed []byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO draw_secrets (campaign_id, sealed) VALUES ($1, $2)`, id, sealed)
	return fault.At(err, "drawrecord.InsertSecret(%s)", id)
}

// SecretOf returns the encrypted secret of a published campaign.
func SecretOf(ctx context.Context, db postgres.DB, id uuid.UUID) (sealed []byte, err error) {
	if err := db.QueryRow(ctx, `SELECT sealed FROM draw_secrets WHERE campaign_id = $1`, id).Scan(&sealed); err != nil {
		return nil, fmt.Errorf("drawrecord.SecretOf(%s): %w", id, err)
	}
	return sealed, nil
}

// Sealed is the encrypted secret of a campaign.
type Sealed struct {
	CampaignID uuid.UUID
	Sealed     []byte
}

// SecretsAfter returns the next encrypted secrets by campaign, at most limit; zero: from
// the first on.
func SecretsAfter(ctx context.Context, db postgres.DB, after uuid.UUID, limit int) ([]Sealed, error) {
	list, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Sealed],
		`SELECT campaign_id, sealed FROM draw_secrets WHERE campaign_id > $1 ORDER BY campaign_id LIMIT $2`, after, limit)
	return list, fault.At(err, "drawrecord.SecretsAfter")
}

// ReplaceSecrets replaces encrypted secrets: those that are still as in old get what
// stands at their place in anew. It returns how many it has replaced.
func ReplaceSecrets(ctx context.Context, db postgres.DB, old []Sealed, anew [][]byte) (int, error) {
	ids, before := make([]uuid.UUID, len(old)), make([][]byte, len(old))
	for i, s := range old {
		ids[i], before[i] = s.CampaignID, s.Sealed
	}
	tag, err := db.Exec(ctx, `
		UPDATE draw_secrets s SET sealed = r.sealed, sealed_at = clock_timestamp()
		FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS r (id, old, sealed)
		WHERE s.campaign_id = r.id AND s.sealed = r.old`, ids, before, anew)
	if err != nil {
		return 0, fmt.Errorf("drawrecord.ReplaceSecrets: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// KeyCheck returns the sealed text that shows whether a key is the right one; nil: there is
// none yet.
func KeyCheck(ctx context.Context, db postgres.DB) (sealed []byte, err error) {
	err = db.QueryRow(ctx, `SELECT sealed FROM draw_key_check`).Scan(&sealed)
	_, err = postgres.Found(err)
	return sealed, fault.At(err, "drawrecord.KeyCheck")
}

// InsertKeyCheck stores the sealed text, unless there is one.
func InsertKeyCheck(ctx context.Context, db postgres.DB, sealed []byte) error {
	_, err := db.Exec(ctx, `INSERT INTO draw_key_check (sealed) VALUES ($1) ON CONFLICT DO NOTHING`, sealed)
	return fault.At(err, "drawrecord.InsertKeyCheck")
}

// ReplaceKeyCheck stores the sealed text in the place of any other.
func ReplaceKeyCheck(ctx context.Context, db postgres.DB, sealed []byte) error {
	_, err := db.Exec(ctx, `INSERT INTO draw_key_check (sealed) VALUES ($1) ON CONFLICT (one) DO UPDATE SET sealed = excluded.sealed`, sealed)
	return fault.At(err, "drawrecord.ReplaceKeyCheck")
}
