package sale

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

// payees are the wallets that cancellations refund.
type payees struct {
	book    *wallet.Book // nil: the apps have the money
	wallets map[wallet.Owner]uuid.UUID
}

func ownerOf(p *purchase.Purchase) wallet.Owner {
	return wallet.Owner{ID: p.UserID, Currency: p.Currency}
}

// lockPayees locks the wallets of purchases that may be cancelled and were paid by
// wallet. wait says whether to wait for those that another transaction has locked.
func (in *cancellations) lockPayees(ctx context.Context, tx pgx.Tx, wait Wait) (*payees, error) {
	owners, references := make(map[wallet.Owner]bool), make(map[wallet.Reference]bool)
	for _, c := range in.wanted {
		if c.check() == nil && c.bought.PaymentMethod == purchase.Wallet {
			owners[ownerOf(c.bought)], references[refundReference(c.PurchaseID)] = true, true
		}
	}
	p := &payees{}
	if len(owners) == 0 {
		return p, nil
	}
	var err error
	if p.wallets, err = wallet.Find(ctx, tx, slices.Collect(maps.Keys(owners))); err != nil {
		return nil, err
	}
	p.book, err = wait.openWallets(ctx, tx, wallet.Wanted{Wallets: slices.Collect(maps.Values(p.wallets)), References: slices.Collect(maps.Keys(references))})
	return p, err
}

// busy reports whether another transaction has locked the wallet to refund.
func (p *payees) busy(bought *purchase.Purchase) bool {
	if p.book == nil || bought.PaymentMethod != purchase.Wallet {
		return false
	}
	id, ok := p.wallets[ownerOf(bought)]
	return ok && slices.Contains(p.book.Busy(), id)
}

// refund gives the price of a purchase back to the wallet that paid for it. It does
// nothing for other payment methods.
func (p *payees) refund(bought *purchase.Purchase) error {
	if bought.PaymentMethod != purchase.Wallet {
		return nil
	}
	_, err := p.book.Refund(p.wallets[ownerOf(bought)], wallet.Movement{Amount: bought.Amount, Reference: refundReference(bought.ID),
		Description: "cancelled purchase " + bought.ID.String()})
	if fault.CodeOf(err) == fault.InvalidRequest { // the balance would be above its bound
		return fault.New(fault.StateConflict, "the wallet cannot take the money back: %s", fault.From(err).Message)
	}
	if err != nil {
		return fmt.Errorf("refund: %w", err)
	}
	return nil
}

// refundReference identifies the refund of a purchase: there is one per purchase.
func refundReference(purchaseID uuid.UUID) wallet.Reference {
	return wallet.Reference{Text: "refund:" + purchaseID.String()}
}

// openWallets locks wallets as w says.
func (w Wait) openWallets(ctx context.Context, tx pgx.Tx, want wallet.Wanted) (*wallet.Book, error) {
	mode := postgres.SkipLocked
	if w.wallets > 0 {
		mode = postgres.WaitForLocks
		if err := postgres.LimitLockWaits(ctx, tx, w.wallets); err != nil {
			return nil, err
		}
	}
	return wallet.Open(ctx, tx, want, mode)
}
