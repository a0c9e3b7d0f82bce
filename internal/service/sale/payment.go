package sale

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

// payers are the wallets that pay for the orders of a transaction.
type payers struct {
	book    *wallet.Book         // nil: no order is paid by wallet
	wallets map[*order]uuid.UUID // of orders that are paid by wallet; missing when the buyer has no wallet
}

// lockWallets locks the wallets of orders that are paid by wallet. wait says whether to
// wait for those that another transaction has locked, or to treat them as busy.
func (in *inputs) lockWallets(ctx context.Context, tx pgx.Tx, orders []*order, wait Wait) (*payers, error) {
	p := &payers{wallets: make(map[*order]uuid.UUID)}
	owners := make(map[wallet.Owner][]*order)
	var want wallet.Wanted
	for _, o := range orders {
		if o.Payment.Method == purchase.Wallet {
			owner := wallet.Owner{ID: o.UserID, Currency: in.campaigns[o.campaignID].Currency}
			owners[owner] = append(owners[owner], o)
			want.References = append(want.References, paymentReference(o.jobID))
		}
	}
	if len(owners) == 0 {
		return p, nil
	}
	found, err := wallet.Find(ctx, tx, slices.Collect(maps.Keys(owners)))
	if err != nil {
		return nil, err
	}
	for owner, id := range found {
		want.Wallets = append(want.Wallets, id)
		for _, o := range owners[owner] {
			p.wallets[o] = id
		}
	}
	mode := postgres.SkipLocked
	if wait.wallets > 0 {
		mode = postgres.WaitForLocks
		if err := postgres.LimitLockWaits(ctx, tx, wait.wallets); err != nil {
			return nil, err
		}
	}
	p.book, err = wallet.Open(ctx, tx, want, mode)
	return p, err
}

// busy reports whether another transaction has locked the wallet of an order.
func (p *payers) busy(o *order) bool {
	id, ok := p.wallets[o]
	return ok && slices.Contains(p.book.Busy(), id)
}

// charge takes the price of a purchase from its buyer's wallet and sets the ledger
// entry as the payment reference. It does nothing for other payment methods.
func (p *payers) charge(o *order, bought purchase.Purchase) (purchase.Purchase, error) {
	if bought.PaymentMethod != purchase.Wallet {
		return bought, nil
	}
	id, ok := p.wallets[o]
	if !ok {
		return bought, fault.New(fault.InsufficientFunds, "this user has no wallet in %s", bought.Currency)
	}
	entry, err := p.book.Pay(id, wallet.Movement{Amount: bought.Amount, Reference: paymentReference(o.jobID),
		Description: "purchase " + bought.ID.String()})
	if err != nil {
		return bought, err
	}
	reference := entry.ID.String()
	bought.PaymentReference = &reference
	return bought, nil
}

// paymentReference identifies the payment of a purchase: there is one per job.
func paymentReference(jobID uuid.UUID) wallet.Reference {
	return wallet.Reference{Text: "purchase:" + jobID.String()}
}

// refundReference identifies the refund of a purchase: there is one per purchase.
func refundReference(purchaseID uuid.UUID) wallet.Reference {
	return wallet.Reference{Text: "refund:" + purchaseID.String()}
}

// refund credits a cancelled purchase to the wallet that paid for it. It waits at most
// limit for the wallet. The caller writes the book.
func refund(ctx context.Context, tx pgx.Tx, bought purchase.Purchase, limit time.Duration) (*wallet.Book, error) {
	owner := wallet.Owner{ID: bought.UserID, Currency: bought.Currency}
	found, err := wallet.Find(ctx, tx, []wallet.Owner{owner})
	if err != nil {
		return nil, err
	}
	if err := postgres.LimitLockWaits(ctx, tx, limit); err != nil {
		return nil, err
	}
	id, reference := found[owner], refundReference(bought.ID)
	book, err := wallet.Open(ctx, tx, wallet.Wanted{Wallets: []uuid.UUID{id}, References: []wallet.Reference{reference}}, postgres.WaitForLocks)
	if err != nil {
		return nil, err
	}
	_, err = book.Refund(id, wallet.Movement{Amount: bought.Amount, Reference: reference, Description: "cancelled purchase " + bought.ID.String()})
	if fault.CodeOf(err) == fault.InvalidRequest { // the balance would be above its bound
		return nil, fault.New(fault.StateConflict, "the wallet cannot take the money back: %s", fault.From(err).Message)
	}
	if err != nil {
		return nil, fmt.Errorf("refund: %w", err)
	}
	return book, nil
}
