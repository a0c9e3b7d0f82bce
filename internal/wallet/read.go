package wallet

import (
	"context"
	"errors"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
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
	from, part, order := page.From, `v.version <= $2`, `v.version DESC`
	switch {
	case page.Upward:
		part, order = `v.version >= $2`, `v.version`
	case from == 0:
		from = math.MaxInt64
	}
	events, err := readEvents(ctx, db, `(SELECT * FROM wallet_events v WHERE v.wallet_id = $1 AND `+part+` ORDER BY `+order+` LIMIT $3) v`, order, id, from, page.Limit)
	return events, fault.At(err, "wallet.History(%s)", id)
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
	events, err := readEvents(ctx, db, `unnest($1::uuid[], $2::bigint[]) AS p (wallet_id, version)
		CROSS JOIN LATERAL (SELECT * FROM wallet_events WHERE wallet_id = p.wallet_id AND version = p.version) v`, `1`, wallets, versions)
	found := make(map[EventID]Event, len(events))
	for _, v := range events {
		found[EventID{v.Wallet, v.Version}] = v
	}
	return found, fault.At(err, "wallet.EventsAt")
}

const none = `'00000000-0000-0000-0000-000000000000'`

// readEvents reads the events v of a FROM. The sums after an event are those of the last snapshot up to it
// and the events after that. A wallet, an authorization or a purchase that there is not is the id zero.
func readEvents(ctx context.Context, db postgres.DB, from, order string, args ...any) ([]Event, error) {
	return postgres.Collect(ctx, db, func(row pgx.CollectableRow) (v Event, err error) {
		e := &v.Entry
		err = row.Scan(&v.Wallet, &v.Version, &v.DeltaBalance, &v.DeltaHeld, &v.Balance, &v.Held, &v.At, &e.ID, &e.Kind,
			&e.Debit.Wallet, &e.Debit.Account, &e.Credit.Wallet, &e.Credit.Account,
			&e.Amount, &e.Currency, &e.Reference.Scope, &e.Reference.Text, &e.Description,
			&e.Authorization, &e.CreatedAt, &e.Metadata, &e.PurchaseID, &e.Actor)
		return v, err
	}, `
		SELECT v.wallet_id, v.version, v.delta_balance, v.delta_held, coalesce(s.balance, 0) + t.balance, coalesce(s.held, 0) + t.held, v.at, e.id, e.kind,
		       coalesce(e.debit_wallet, `+none+`), coalesce(e.debit_account, ''), coalesce(e.credit_wallet, `+none+`), coalesce(e.credit_account, ''),
		       e.amount, e.currency, e.scope, e.reference, coalesce(e.description, ''),
		       coalesce(e.authorization_id, `+none+`), e.created_at, e.metadata, coalesce(e.purchase_id, `+none+`), e.actor
		FROM `+from+`
		CROSS JOIN LATERAL (SELECT * FROM ledger_entries WHERE id = v.entry_id) e
		LEFT JOIN LATERAL (
			SELECT version, balance, held FROM wallet_snapshots WHERE wallet_id = v.wallet_id AND version <= v.version
			ORDER BY version DESC LIMIT 1) s ON true
		CROSS JOIN LATERAL (
			SELECT coalesce(sum(delta_balance), 0)::bigint AS balance, coalesce(sum(delta_held), 0)::bigint AS held
			FROM wallet_events WHERE wallet_id = v.wallet_id AND version > coalesce(s.version, 0) AND version <= v.version) t
		ORDER BY `+order, args...)
}

// GetAll returns wallets as they are now, in any order. It leaves out those that do not exist.
func GetAll(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Wallet, error) {
	wallets, err := postgres.Collect(ctx, db, scanWallet, `SELECT `+walletColumns+` FROM wallets w WHERE id = ANY($1)`, ids)
	return wallets, fault.At(err, "wallet.GetAll")
}
