package sale

import (
	"context"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

func ownerOf(p *purchase.Purchase) wallet.Owner {
	return wallet.Owner{ID: p.UserID, Currency: p.Currency}
}

// payBackOf is what a cancelled purchase gives back to the wallet that paid it.
func payBackOf(p *purchase.Purchase) wallet.PayBack {
	return wallet.PayBack{PurchaseID: p.ID, Owner: ownerOf(p), Amount: p.Amount}
}

// lockPayees locks the wallets of purchases that may be cancelled and were paid by
// wallet. wait says whether to wait for those that another transaction has locked.
func (in *cancellations) lockPayees(ctx context.Context, tx pgx.Tx, wait Wait) (*wallet.Payees, error) {
	var want []wallet.PayBack
	for _, c := range in.wanted {
		if c.check() == nil && c.bought.PaymentMethod == purchase.Wallet {
			want = append(want, payBackOf(c.bought))
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
	if w.wallets == 0 {
		return postgres.SkipLocked, nil
	}
	return postgres.WaitForLocks, postgres.LimitLockWaits(ctx, tx, w.wallets)
}
