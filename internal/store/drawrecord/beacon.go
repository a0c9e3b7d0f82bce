package drawrecord

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/beacon"
	"triprize/internal/domain/fairdraw"
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

// RoundOf returns a stored round, or false.
func RoundOf(ctx context.Context, db postgres.DB, chain fairdraw.Hash, number uint64) (beacon.Round, bool, error) {
	return round(ctx, db, `WHERE chain_hash = $1 AND round = $2`, chain[:], number)
}

// NewestRound returns the newest stored round of a chain, or false when there is none.
func NewestRound(ctx context.Context, db postgres.DB, chain fairdraw.Hash) (beacon.Round, bool, error) {
	return round(ctx, db, `WHERE chain_hash = $1 ORDER BY round DESC LIMIT 1`, chain[:])
}

func round(ctx context.Context, db postgres.DB, where string, args ...any) (r beacon.Round, ok bool, err error) {
	var randomness []byte
	err = db.QueryRow(ctx, `SELECT round, signature, randomness FROM beacon_rounds `+where, args...).Scan(&r.Number, &r.Signature, &randomness)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("drawrecord.round: %w", err)
	}
	r.Randomness = [sha256.Size]byte(randomness)
	return r, true, nil
}
