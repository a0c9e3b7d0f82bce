package sale

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

func ownerOf(p *purchase.Purchase) wallet.Owner {
	return wallet.Owner{Client: p.Client, ID: p.UserID, Currency: p.Currency}
}

// payBack is what the cancellation gives back to the wallet that paid.
func (c *cancellation) payBack() wallet.PayBack {
	back := wallet.PayBack{PurchaseID: c.bought.ID, Owner: ownerOf(c.bought), Amount: purchase.PriceOf(c.items()), By: c.By}
	if c.partial() {
		back.Part = c.ID
	}
	return back
}

// lockPayees locks the wallets of purchases that may be cancelled and were paid by
// wallet. wait says whether to wait for those that another transaction has locked.
func (in *cancellations) lockPayees(ctx context.Context, tx pgx.Tx, wait Wait) (*wallet.Payees, error) {
	var want []wallet.PayBack
	for _, c := range in.wanted {
		if c.check() == nil && c.bought.PaymentMethod == purchase.Wallet {
			want = append(want, c.payBack())
			if all := want[len(want)-1]; all.Part != uuid.Nil { // those before it may leave nothing else
				all.Part = uuid.Nil
				want = append(want, all)
			}
		}
	}
	if len(want) == 0 {
		return &wallet.Payees{}, nil
	}
	mode, err := wait.forWallets(ctx, tx)
	if err != nil {
		return nil, err
	}
	return wallet.OpenPayees(ctx, tx, want, mode)
}

// openWallets locks wallets as w says.
func (w Wait) openWallets(ctx context.Context, tx pgx.Tx, want wallet.Wanted) (*wallet.UnitOfWork, error) {
	mode, err := w.forWallets(ctx, tx)
	if err != nil {
		return nil, err
	}
	return wallet.Open(ctx, tx, want, mode)
}

// forWallets returns how to lock wallets, and bounds the waits of the rest of the
// transaction if it is to wait for them.
func (w Wait) forWallets(ctx context.Context, tx pgx.Tx) (postgres.LockMode, error) {
	if w.Wallets == 0 {
		return postgres.SkipLocked, nil
	}
	return postgres.WaitForLocks, postgres.LimitLockWaits(ctx, tx, w.Wallets)
}
