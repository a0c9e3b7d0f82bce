package wallet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
)

// PayBack is a refund of a purchase, or of a part of it, to the wallet that paid.
type PayBack struct {
	PurchaseID uuid.UUID
	Part       uuid.UUID // the job that cancels a part; zero: all that is left
	Owner      Owner
	Amount     money.Amount
	By         string // the actor
}

// reference identifies the refund: there is one per part, and one of the rest.
func (p PayBack) reference() Reference {
	text := "refund:" + p.PurchaseID.String()
	if p.Part != uuid.Nil {
		text += ":" + p.Part.String()
	}
	return Reference{Text: text}
}

// Buyers are the wallets of buyers, for payments and refunds of purchases. Nothing is written
// before [Buyers.Queue]. The zero Buyers has no wallets.
type Buyers struct {
	unit    *UnitOfWork // nil: no wallet is wanted
	wallets map[Owner]uuid.UUID
}

// OpenBuyers locks the wallets of those owners that have one, and finds which of the references are
// used.
func OpenBuyers(ctx context.Context, tx pgx.Tx, owners map[Owner]bool, references map[Reference]bool, mode postgres.LockMode) (*Buyers, error) {
	wallets, err := Find(ctx, tx, slices.Collect(maps.Keys(owners)))
	if err != nil {
		return nil, err
	}
	unit, err := Open(ctx, tx, ReadSet{Wallets: slices.Collect(maps.Values(wallets)), References: slices.Collect(maps.Keys(references))}, mode)
	return &Buyers{unit, wallets}, err
}

// OpenPayees is OpenBuyers for refunds. A purchase may have several.
func OpenPayees(ctx context.Context, tx pgx.Tx, want []PayBack, mode postgres.LockMode) (*Buyers, error) {
	if len(want) == 0 {
		return &Buyers{}, nil
	}
	owners, references := make(map[Owner]bool), make(map[Reference]bool)
	for _, refund := range want {
		owners[refund.Owner], references[refund.reference()] = true, true
	}
	return OpenBuyers(ctx, tx, owners, references, mode)
}

// Busy reports whether another transaction has locked the wallet of an owner.
func (b *Buyers) Busy(owner Owner) bool {
	id, ok := b.wallets[owner]
	if !ok {
		return false
	}
	_, err := b.unit.account(id)
	return errors.Is(err, ErrBusy)
}

// Pay takes the price of a purchase.
func (b *Buyers) Pay(owner Owner, m Movement) (Entry, error) {
	id, ok := b.wallets[owner]
	if !ok {
		return Entry{}, fault.New(fault.InsufficientFunds, "this user has no wallet in %s", owner.Currency)
	}
	return b.unit.Pay(id, m)
}

// PayBack credits the wallet that paid a purchase. It returns a state-conflict Error when the
// balance would exceed its limit, and [ErrBroken] for a broken wallet.
func (b *Buyers) PayBack(back PayBack) error {
	what := "cancelled purchase "
	if back.Part != uuid.Nil {
		what = "cancelled part of purchase "
	}
	_, err := b.unit.Refund(b.wallets[back.Owner], Movement{Amount: back.Amount, Reference: back.reference(), Description: what + back.PurchaseID.String(),
		PurchaseID: back.PurchaseID, Actor: back.By})
	if fault.CodeOf(err) == fault.InvalidRequest { // the balance would exceed its limit
		return fault.New(fault.StateConflict, "the wallet cannot be credited with the refund: %s", fault.From(err).Message)
	}
	return fault.At(err, "wallet.PayBack")
}

// Queue queues the statements that write payments and refunds.
func (b *Buyers) Queue(p *pgx.Batch) {
	if b.unit != nil {
		b.unit.queue(p)
	}
}

// CreateResult is the wallet of an owner.
type CreateResult struct {
	ID    uuid.UUID
	Fresh bool // this call created it
}

// NewWallet is a wallet to be created.
type NewWallet struct {
	Owner
	Metadata metadata.Map
}

// Create creates empty wallets for those of the owners that have none in their
// currency, and returns the wallet of each. Of several openings for one owner the first
// counts. Call it before Open, with owners that pass check. It inserts in the order of
// owners, so that two transactions that create the same wallets cannot deadlock.
func Create(ctx context.Context, tx pgx.Tx, openings []NewWallet) (map[Owner]CreateResult, error) {
	order := slices.Clone(openings)
	slices.SortStableFunc(order, func(x, y NewWallet) int {
		return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.Currency, y.Currency), cmp.Compare(x.Client, y.Client))
	})
	order = slices.CompactFunc(order, func(x, y NewWallet) bool { return x.Owner == y.Owner })
	n := len(order)
	fresh, names, currencies := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	clients, texts := make([]string, n), make([][]byte, n)
	for i, o := range order {
		fresh[i], names[i], currencies[i] = uuidv7.New(), o.ID, o.Currency
		clients[i], texts[i] = o.Client, o.Metadata.Text()
	}
	made := make(map[Owner]CreateResult, n)
	var id uuid.UUID
	var o Owner
	err := postgres.Scan(ctx, tx, func() { made[o] = CreateResult{ID: id, Fresh: true} }, []any{&id, &o.ID, &o.Currency, &o.Client}, `
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
		made[o] = CreateResult{ID: id}
	}
	return made, err
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
	var id uuid.UUID
	var o Owner
	err := postgres.Scan(ctx, db, func() { found[o] = id }, []any{&id, &o.ID, &o.Currency, &o.Client}, `
		SELECT w.id, w.owner_id, w.currency, w.client FROM unnest($1::text[], $2::text[], $3::text[]) AS o (owner_id, currency, client)
		CROSS JOIN LATERAL (SELECT * FROM wallets WHERE owner_id = o.owner_id AND currency = o.currency AND client = o.client) w`, names, currencies, clients)
	return found, fault.At(err, "wallet.Find")
}
