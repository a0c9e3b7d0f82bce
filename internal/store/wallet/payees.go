package wallet

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
)

// PayBack is the price of a purchase, or of a part of it, that goes back to the wallet that paid.
type PayBack struct {
	PurchaseID uuid.UUID
	Part       uuid.UUID // the job that cancels a part; zero: all that is left
	Owner      Owner
	Amount     money.Amount
	By         string // who cancels it
}

// reference identifies what is paid back: there is one per part, and one of what is left.
func (p PayBack) reference() Reference {
	text := "refund:" + p.PurchaseID.String()
	if p.Part != uuid.Nil {
		text += ":" + p.Part.String()
	}
	return Reference{Text: text}
}

// Payees are the wallets that purchases are paid back to. Nothing is written before
// [Payees.Queue]. A Payees without wallets is empty.
type Payees struct {
	unit    *UnitOfWork // nil: there is nothing to pay back
	wallets map[Owner]uuid.UUID
}

// OpenPayees locks the wallets that want to be paid back. mode says whether to wait for
// those that another transaction has locked. A purchase may be there several times.
func OpenPayees(ctx context.Context, tx pgx.Tx, want []PayBack, mode postgres.LockMode) (*Payees, error) {
	p := &Payees{}
	if len(want) == 0 {
		return p, nil
	}
	owners, references := make(map[Owner]bool), make(map[Reference]bool)
	for _, back := range want {
		owners[back.Owner], references[back.reference()] = true, true
	}
	var err error
	if p.wallets, err = Find(ctx, tx, slices.Collect(maps.Keys(owners))); err != nil {
		return nil, err
	}
	p.unit, err = Open(ctx, tx, Wanted{Wallets: slices.Collect(maps.Values(p.wallets)), References: slices.Collect(maps.Keys(references))}, mode)
	return p, err
}

// Busy reports whether another transaction has locked the wallet of an owner.
func (p *Payees) Busy(owner Owner) bool {
	if p.unit == nil {
		return false
	}
	id, ok := p.wallets[owner]
	return ok && slices.Contains(p.unit.Busy(), id)
}

// PayBack credits the wallet that paid a purchase. A wallet whose balance would be above
// its bound is a state-conflict Error, and a broken one [ErrBroken].
func (p *Payees) PayBack(back PayBack) error {
	what := "cancelled purchase "
	if back.Part != uuid.Nil {
		what = "cancelled part of purchase "
	}
	_, err := p.unit.Refund(p.wallets[back.Owner], Movement{Amount: back.Amount, Reference: back.reference(), Description: what + back.PurchaseID.String(),
		PurchaseID: back.PurchaseID, Actor: back.By})
	if fault.CodeOf(err) == fault.InvalidRequest { // the balance would be above its bound
		return fault.New(fault.StateConflict, "the wallet cannot take the money back: %s", fault.From(err).Message)
	}
	return fault.At(err, "wallet.PayBack")
}

// Queue writes what was paid back, see [UnitOfWork.Queue].
func (p *Payees) Queue(b *pgx.Batch) {
	if p.unit != nil {
		p.unit.Queue(b)
	}
}
