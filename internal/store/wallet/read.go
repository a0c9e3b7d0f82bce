package wallet

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// walletColumns are the fields of a Wallet, in order.
const walletColumns = `id, client, owner_id, currency, balance, held, version, created_at,
	(SELECT metadata FROM wallet_metadata WHERE wallet_id = wallets.id)`

var scanWallet = pgx.RowToStructByPos[Wallet]

// Get returns a wallet as it is now, or a not-found Error. Held includes
// authorizations that are over until a command or a sweep ends them.
func Get(ctx context.Context, db postgres.DB, who access.Grant, id uuid.UUID) (Wallet, error) {
	w, err := postgres.CollectOne(ctx, db, scanWallet, `
		SELECT `+walletColumns+` FROM wallets WHERE id = $1 AND ($2::text IS NULL OR client = $2) AND ($3::text IS NULL OR owner_id = $3)`, id, who.Client(), who.User())
	if errors.Is(err, pgx.ErrNoRows) {
		return Wallet{}, fault.New(fault.NotFound, "there is no wallet %s", id)
	}
	return w, fault.At(err, "wallet.Get(%s)", id)
}

// OfOwner returns up to limit wallets of an owner in the order of their ids, those after an id
// (zero: from the start); an empty currency means all. An owner has few.
func OfOwner(ctx context.Context, db postgres.DB, who access.Grant, ownerID, currency string, after uuid.UUID, limit int) ([]Wallet, error) {
	wallets, err := postgres.Collect(ctx, db, scanWallet, `
		SELECT `+walletColumns+` FROM wallets
		WHERE owner_id = $1 AND ($2 = '' OR currency = $2) AND id > $3 AND ($5::text IS NULL OR client = $5) AND ($6::text IS NULL OR owner_id = $6)
		ORDER BY id LIMIT $4`, ownerID, currency, after, limit, who.Client(), who.User())
	return wallets, fault.At(err, "wallet.OfOwner(%s)", ownerID)
}

// authorizationColumns are the fields of an Authorization, in order.
const authorizationColumns = `id, wallet_id, amount, captured, state, coalesce(description, '') AS description, created_at, expires_at, metadata`

var scanAuthorization = pgx.RowToStructByPos[Authorization]

// GetAuthorization returns an authorization of a wallet, or a not-found Error.
func GetAuthorization(ctx context.Context, db postgres.DB, walletID, id uuid.UUID) (Authorization, error) {
	a, err := postgres.CollectOne(ctx, db, scanAuthorization, `SELECT `+authorizationColumns+` FROM authorizations WHERE id = $1 AND wallet_id = $2`, id, walletID)
	if errors.Is(err, pgx.ErrNoRows) {
		return Authorization{}, fault.New(fault.NotFound, "the wallet has no authorization %s", id)
	}
	return a, fault.At(err, "wallet.GetAuthorization(%s)", id)
}

// FindDue returns the wallets of at most limit authorizations that are over, the
// oldest first, without the wallets in except. It locks nothing: the caller checks
// again under the wallets' locks.
func FindDue(ctx context.Context, db postgres.DB, except []uuid.UUID, limit int) ([]uuid.UUID, error) {
	ids, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		SELECT wallet_id FROM (
			SELECT wallet_id, expires_at FROM authorizations
			WHERE state = 'active' AND expires_at <= (SELECT clock_timestamp()) AND wallet_id <> ALL(coalesce($2::uuid[], '{}'))
			ORDER BY expires_at LIMIT $1) d
		GROUP BY wallet_id ORDER BY min(expires_at)`, limit, except)
	return ids, fault.At(err, "wallet.FindDue")
}
