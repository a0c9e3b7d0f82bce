package sale

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

// payers are the wallets that pay for the orders of a transaction.
type payers struct {
	unit    *wallet.UnitOfWork   // nil: no order is paid by wallet
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
			owner := wallet.Owner{Client: o.client, ID: o.UserID, Currency: in.campaigns[o.campaignID].Currency}
			owners[owner] = append(owners[owner], o)
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
	p.unit, err = wait.openWallets(ctx, tx, want)
	return p, err
}

// busy reports whether another transaction has locked the wallet of an order.
func (p *payers) busy(o *order) bool {
	id, ok := p.wallets[o]
	return ok && slices.Contains(p.unit.Busy(), id)
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
	entry, err := p.unit.Pay(id, wallet.Movement{Amount: bought.Amount, Reference: paymentReference(o.jobID),
		Description: "purchase " + bought.ID.String(), PurchaseID: bought.ID, Actor: o.By})
	if err != nil {
		return bought, err
	}
	reference := entry.ID.String()
	bought.PaymentReference = &reference
	return bought, nil
}

// paymentReference identifies the payment of a purchase: there is one per job. Nobody looks
// whether it was used, as the job of a used one is final. The ledger refuses a second entry.
func paymentReference(jobID uuid.UUID) wallet.Reference {
	return wallet.Reference{Text: "purchase:" + jobID.String()}
}
