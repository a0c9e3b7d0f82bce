package wallet

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Place is where an event is: in a wallet, at a version.
type Place struct {
	Wallet  uuid.UUID
	Version int64
}

// EventsAt returns the events at places, with the wallets' sums after each. One that is not
// there is left out. It is one statement, however many places there are.
func EventsAt(ctx context.Context, db postgres.DB, places []Place) (map[Place]Event, error) {
	wallets, versions := make([]uuid.UUID, len(places)), make([]int64, len(places))
	for i, p := range places {
		wallets[i], versions[i] = p.Wallet, p.Version
	}
	found := make(map[Place]Event, len(places))
	_, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (p Place, err error) {
		var v Event
		if err = row.Scan(append(v.targets(), &p.Wallet, &v.Balance, &v.Held)...); err == nil {
			p.Version = v.Version
			found[p] = v
		}
		return p, err
	}, `
		SELECT `+eventColumns+`, v.wallet_id, coalesce(s.balance, 0) + t.balance, coalesce(s.held, 0) + t.held
		FROM unnest($1::uuid[], $2::bigint[]) AS p (wallet_id, version)
		CROSS JOIN LATERAL (SELECT * FROM wallet_events WHERE wallet_id = p.wallet_id AND version = p.version) v
		CROSS JOIN LATERAL (SELECT * FROM ledger_entries WHERE id = v.entry_id) e
		LEFT JOIN LATERAL (
			SELECT version, balance, held FROM wallet_snapshots WHERE wallet_id = p.wallet_id AND version <= p.version
			ORDER BY version DESC LIMIT 1) s ON true
		CROSS JOIN LATERAL (
			SELECT coalesce(sum(delta_balance), 0)::bigint AS balance, coalesce(sum(delta_held), 0)::bigint AS held
			FROM wallet_events WHERE wallet_id = p.wallet_id AND version > coalesce(s.version, 0) AND version <= p.version) t`, wallets, versions)
	return found, fault.At(err, "wallet.EventsAt")
}

// GetAll returns wallets as they are now, in no order. One that is not there is left out.
func GetAll(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Wallet, error) {
	wallets, err := postgres.Collect(ctx, db, scanWallet, `SELECT `+walletColumns+` FROM wallets WHERE id = ANY($1)`, ids)
	return wallets, fault.At(err, "wallet.GetAll")
}
