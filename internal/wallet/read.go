package wallet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
)

// walletColumns are the fields of a Wallet, in order.
const walletColumns = `w.id, w.client, w.owner_id, w.currency, w.balance, w.held, w.version, w.created_at,
	(SELECT metadata FROM wallet_metadata WHERE wallet_id = w.id)`

// targets are what walletColumns are scanned into.
func (w *Wallet) targets() []any {
	return []any{&w.ID, &w.Client, &w.Owner.ID, &w.Currency, &w.Balance, &w.Held, &w.Version, &w.CreatedAt, &w.Metadata}
}

func scanWallet(row pgx.CollectableRow) (w Wallet, err error) { return w, row.Scan(w.targets()...) }

// Get returns a wallet as it is now, or a not-found Error. Held includes
// authorizations that are over until a command or a sweep ends them.
func Get(ctx context.Context, db postgres.DB, grant access.Grant, id uuid.UUID) (Wallet, error) {
	w, err := postgres.CollectOne(ctx, db, scanWallet, `
		SELECT `+walletColumns+` FROM wallets w WHERE id = $1 AND ($2::text IS NULL OR client = $2) AND ($3::text IS NULL OR owner_id = $3)`, id, grant.Client(), grant.User())
	if errors.Is(err, pgx.ErrNoRows) {
		return Wallet{}, fault.New(fault.NotFound, "there is no wallet %s", id)
	}
	return w, fault.At(err, "wallet.Get(%s)", id)
}

// OfOwner returns up to limit wallets of an owner in the order of their ids, those after an id
// (zero: from the start); an empty currency means all. An owner has few.
func OfOwner(ctx context.Context, db postgres.DB, grant access.Grant, ownerID, currency string, after uuid.UUID, limit int) ([]Wallet, error) {
	wallets, err := postgres.Collect(ctx, db, scanWallet, `
		SELECT `+walletColumns+` FROM wallets w
		WHERE owner_id = $1 AND ($2 = '' OR currency = $2) AND id > $3 AND ($5::text IS NULL OR client = $5) AND ($6::text IS NULL OR owner_id = $6)
		ORDER BY id LIMIT $4`, ownerID, currency, after, limit, grant.Client(), grant.User())
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

// Page is a part of a wallet's history.
type Page struct {
	From   int64 // the version to begin with; 0: the newest, or with Upward the oldest
	Upward bool  // oldest first instead of newest first
	Limit  int
}

// History returns a page of a wallet's events, with the wallet's sums after each.
// The next page begins with the version after the last one returned, in the
// direction of the page. A wallet that does not exist has no events.
func History(ctx context.Context, db postgres.DB, id uuid.UUID, page Page) ([]Event, error) {
	from, part := page.From, `v.version <= $2 ORDER BY v.version DESC`
	switch {
	case page.Upward:
		part = `v.version >= $2 ORDER BY v.version`
	case from == 0:
		from = math.MaxInt64
	}
	events, err := postgres.Collect(ctx, db, scanEvent, `
		SELECT `+eventColumns+`
		FROM (SELECT * FROM wallet_events v WHERE v.wallet_id = $1 AND `+part+` LIMIT $3) v
		CROSS JOIN LATERAL (SELECT * FROM ledger_entries WHERE id = v.entry_id) e
		ORDER BY v.version`, id, from, page.Limit)
	if err != nil {
		return nil, fmt.Errorf("wallet.History(%s): %w", id, err)
	}
	if len(events) == 0 {
		return events, nil
	}
	sum, err := sumAt(ctx, db, id, events[0].Version-1) // events never change, so a second statement sees the same ones
	if err != nil {
		return nil, fmt.Errorf("wallet.History(%s): %w", id, err)
	}
	for i := range events {
		sum.Balance += events[i].DeltaBalance
		sum.Held += events[i].DeltaHeld
		events[i].Balance, events[i].Held = sum.Balance, sum.Held
	}
	if !page.Upward {
		slices.Reverse(events)
	}
	return events, nil
}

// eventColumns are those of an event v and its entry e. A wallet, an authorization or a purchase
// that there is not is the id zero.
const eventColumns = `v.version, v.delta_balance, v.delta_held, v.at, e.id, e.kind,
		       coalesce(e.debit_wallet, ` + none + `), coalesce(e.debit_account, ''), coalesce(e.credit_wallet, ` + none + `), coalesce(e.credit_account, ''),
		       e.amount, e.currency, e.scope, e.reference, coalesce(e.description, ''),
		       coalesce(e.authorization_id, ` + none + `), e.created_at, e.metadata, coalesce(e.purchase_id, ` + none + `), e.actor`

const none = `'00000000-0000-0000-0000-000000000000'`

// targets are what eventColumns are scanned into.
func (v *Event) targets() []any {
	e := &v.Entry
	return []any{&v.Version, &v.DeltaBalance, &v.DeltaHeld, &v.At, &e.ID, &e.Kind,
		&e.Debit.Wallet, &e.Debit.Account, &e.Credit.Wallet, &e.Credit.Account,
		&e.Amount, &e.Currency, &e.Reference.Scope, &e.Reference.Text, &e.Description,
		&e.Authorization, &e.CreatedAt, &e.Metadata, &e.PurchaseID, &e.Actor}
}

func scanEvent(row pgx.CollectableRow) (v Event, err error) {
	err = row.Scan(v.targets()...)
	return v, err
}

// sums is the sum of the events of a wallet up to a version.
type sums struct{ Balance, Held money.Amount }

// sumAt computes what a wallet had at a version, from the last snapshot up to it and
// the events after that. It returns a not-found Error for a version that the wallet
// does not have.
func sumAt(ctx context.Context, db postgres.DB, id uuid.UUID, version int64) (sums, error) {
	var sum sums
	var last int64
	err := db.QueryRow(ctx, `
		SELECT coalesce(s.version, 0) + e.events, coalesce(s.balance, 0) + e.balance, coalesce(s.held, 0) + e.held
		FROM wallets w
		LEFT JOIN LATERAL (
			SELECT version, balance, held FROM wallet_snapshots WHERE wallet_id = w.id AND version <= $2
			ORDER BY version DESC LIMIT 1) s ON true
		CROSS JOIN LATERAL (
			SELECT count(*) AS events, coalesce(sum(delta_balance), 0)::bigint AS balance, coalesce(sum(delta_held), 0)::bigint AS held
			FROM wallet_events WHERE wallet_id = w.id AND version > coalesce(s.version, 0) AND version <= $2) e
		WHERE w.id = $1`, id, version).Scan(&last, &sum.Balance, &sum.Held)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && last != version {
		return sums{}, fault.New(fault.NotFound, "there is no version %d of wallet %s", version, id)
	}
	return sum, fault.At(err, "wallet.sumAt(%s, %d)", id, version)
}

// EventID identifies an event.
type EventID struct {
	Wallet  uuid.UUID
	Version int64
}

// EventsAt returns events with the wallets' sums after each, in one statement. It leaves out
// those that do not exist.
func EventsAt(ctx context.Context, db postgres.DB, ids []EventID) (map[EventID]Event, error) {
	wallets, versions := make([]uuid.UUID, len(ids)), make([]int64, len(ids))
	for i, p := range ids {
		wallets[i], versions[i] = p.Wallet, p.Version
	}
	found := make(map[EventID]Event, len(ids))
	_, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (id EventID, err error) {
		var v Event
		if err = row.Scan(append(v.targets(), &id.Wallet, &v.Balance, &v.Held)...); err == nil {
			id.Version = v.Version
			found[id] = v
		}
		return id, err
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

// GetAll returns wallets as they are now, in any order. It leaves out those that do not exist.
func GetAll(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Wallet, error) {
	wallets, err := postgres.Collect(ctx, db, scanWallet, `SELECT `+walletColumns+` FROM wallets w WHERE id = ANY($1)`, ids)
	return wallets, fault.At(err, "wallet.GetAll")
}
