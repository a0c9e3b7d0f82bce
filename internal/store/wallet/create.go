package wallet

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/metadata"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
)

// Created is the wallet of an owner.
type Created struct {
	ID    uuid.UUID
	Fresh bool // this call made it
}

// Opening is a wallet that is wanted.
type Opening struct {
	Owner
	Metadata metadata.Map
}

// Create makes empty wallets for those of the owners that have none in their
// currency, and returns the wallet of each. Of several openings for one owner the first
// counts. Call it before Open, with owners that pass Check. It inserts in the order of
// owners, so that two transactions that create the same wallets cannot deadlock.
func Create(ctx context.Context, tx pgx.Tx, openings []Opening) (map[Owner]Created, error) {
	order := slices.Clone(openings)
	slices.SortStableFunc(order, func(x, y Opening) int { return compareOwners(x.Owner, y.Owner) })
	order = slices.CompactFunc(order, func(x, y Opening) bool { return x.Owner == y.Owner })
	made, err := insert(ctx, tx, order)
	if err != nil {
		return nil, fmt.Errorf("wallet.Create: %w", err)
	}
	// A wallet in conflict with the insert may be newer than its snapshot: a later statement sees it.
	var others []Owner
	for _, o := range order {
		if !made[o.Owner].Fresh {
			others = append(others, o.Owner)
		}
	}
	old, err := Find(ctx, tx, others)
	for o, id := range old {
		made[o] = Created{ID: id}
	}
	return made, err
}

// insert makes the wallets that are not there, with their metadata.
func insert(ctx context.Context, tx pgx.Tx, openings []Opening) (map[Owner]Created, error) {
	n := len(openings)
	fresh, names, currencies := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	clients, texts := make([]string, n), make([][]byte, n)
	for i, o := range openings {
		fresh[i], names[i], currencies[i] = uuidv7.New(), o.ID, o.Currency
		clients[i], texts[i] = o.Client, o.Metadata.Text()
	}
	rows, err := tx.Query(ctx, `
		WITH wanted AS MATERIALIZED (
			SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[]) AS w (id, owner_id, currency, client, metadata)
		), made AS (
			INSERT INTO wallets (id, owner_id, currency, client)
			SELECT id, owner_id, currency, client FROM wanted
			ON CONFLICT (owner_id, currency, client) DO NOTHING
			RETURNING id, owner_id, currency, client
		), noted AS (
			INSERT INTO wallet_metadata (wallet_id, metadata)
			SELECT id, wanted.metadata FROM made JOIN wanted USING (id) WHERE wanted.metadata IS NOT NULL
		)
		SELECT id, owner_id, currency, client FROM made`, fresh, names, currencies, clients, texts)
	if err != nil {
		return nil, err
	}
	made := make(map[Owner]Created, n)
	var id uuid.UUID
	var o Owner
	_, err = pgx.ForEachRow(rows, []any{&id, &o.ID, &o.Currency, &o.Client}, func() error {
		made[o] = Created{ID: id, Fresh: true}
		return nil
	})
	return made, err
}

func compareOwners(x, y Owner) int {
	return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.Currency, y.Currency), cmp.Compare(x.Client, y.Client))
}

// Find returns the wallets of those of the owners that have one. It locks nothing:
// the owner of a wallet never changes.
func Find(ctx context.Context, db postgres.DB, owners []Owner) (map[Owner]uuid.UUID, error) {
	found := make(map[Owner]uuid.UUID, len(owners))
	if len(owners) == 0 {
		return found, nil
	}
	names, currencies, clients := make([]string, len(owners)), make([]string, len(owners)), make([]string, len(owners))
	for i, o := range owners {
		names[i], currencies[i], clients[i] = o.ID, o.Currency, o.Client
	}
	rows, err := db.Query(ctx, `
		SELECT w.id, w.owner_id, w.currency, w.client FROM unnest($1::text[], $2::text[], $3::text[]) AS o (owner_id, currency, client)
		CROSS JOIN LATERAL (SELECT * FROM wallets WHERE owner_id = o.owner_id AND currency = o.currency AND client = o.client) w`, names, currencies, clients)
	if err != nil {
		return nil, fmt.Errorf("wallet.Find: %w", err)
	}
	var id uuid.UUID
	var o Owner
	if _, err := pgx.ForEachRow(rows, []any{&id, &o.ID, &o.Currency, &o.Client}, func() error { found[o] = id; return nil }); err != nil {
		return nil, fmt.Errorf("wallet.Find: %w", err)
	}
	return found, nil
}
