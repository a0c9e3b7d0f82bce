package sale

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

// till is the wallets that pay for the orders of a batch.
type till struct {
	book    *wallet.Book
	wallets map[wallet.Owner]uuid.UUID
}

// walletWait bounds how long a batch waits for wallets that somebody else has.
const walletWait = 250 * time.Millisecond

// openTill locks the wallets of orders that are paid by wallet, last of all
// locks. Unless it may wait, orders whose wallet somebody else has are put off to
// the next batch.
func (b *batch) openTill(ctx context.Context, tx pgx.Tx, wait bool) (err error) {
	var owners []wallet.Owner
	var want wallet.Wanted
	for _, o := range b.wanted {
		if o.Payment.Method != purchase.Wallet {
			continue
		}
		if owner := b.payer(o); !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
		want.References = append(want.References, payment(o.jobID))
	}
	if len(owners) == 0 {
		return nil
	}
	if b.till.wallets, err = wallet.Find(ctx, tx, owners); err != nil {
		return err
	}
	for _, id := range b.till.wallets {
		want.Wallets = append(want.Wallets, id)
	}
	if wait { // the statement's error would end the transaction: callers ask for it with nothing to lose
		if err := waitForWallets(ctx, tx); err != nil {
			return err
		}
	}
	if b.till.book, err = wallet.Open(ctx, tx, want, wait); err != nil {
		return err
	}
	busy := b.till.book.Busy()
	b.wanted = slices.DeleteFunc(b.wanted, func(o *order) bool {
		putOff := o.Payment.Method == purchase.Wallet && slices.Contains(busy, b.till.wallets[b.payer(o)])
		if putOff {
			b.busy = append(b.busy, job.Ref{ID: o.jobID, CampaignID: o.campaignID})
		}
		return putOff
	})
	return nil
}

// waitForWallets bounds the waits of the rest of a transaction that has its
// campaign's lock.
func waitForWallets(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, walletWait.Milliseconds())); err != nil {
		return fmt.Errorf("waitForWallets: %w", err)
	}
	return nil
}

// payer is whose wallet pays for an order.
func (b *batch) payer(o *order) wallet.Owner {
	return wallet.Owner{ID: o.UserID, Currency: b.campaigns[o.campaignID].Currency}
}

// payment names the movement that pays for a purchase: one job, one payment.
func payment(jobID uuid.UUID) wallet.Reference {
	return wallet.Reference{Text: "purchase:" + jobID.String()}
}

// refund names the movement that gives back what a purchase cost: once.
func refund(purchaseID uuid.UUID) wallet.Reference {
	return wallet.Reference{Text: "refund:" + purchaseID.String()}
}

// charge takes what a purchase costs from its buyer's wallet, and notes the
// ledger entry as its reference. Purchases of one user see what those before
// them in the batch have spent.
func (b *batch) charge(o *order, bought *purchase.Purchase) error {
	if bought.PaymentMethod != purchase.Wallet {
		return nil
	}
	owner := b.payer(o)
	id, ok := b.till.wallets[owner]
	if !ok {
		return fault.New(fault.InsufficientFunds, "this user has no wallet in %s", owner.Currency)
	}
	entry, err := b.till.book.Pay(id, wallet.Movement{Amount: bought.Amount, Reference: payment(o.jobID), Description: "purchase " + bought.ID.String()})
	if err != nil {
		return err
	}
	reference := entry.ID.String()
	bought.PaymentReference = &reference
	return nil
}

// giveBack credits a cancelled purchase to the wallet that paid for it, once: the
// movement is named after the purchase. It waits for the wallet, the last of all
// locks. The book is to be written with the rest.
func (c cancellation) giveBack(ctx context.Context, tx pgx.Tx) (*wallet.Book, error) {
	if c.bought.PaymentMethod != purchase.Wallet {
		return nil, nil //nolint:nilnil // the app has the money
	}
	owner := wallet.Owner{ID: c.bought.UserID, Currency: c.bought.Currency}
	found, err := wallet.Find(ctx, tx, []wallet.Owner{owner})
	if err != nil {
		return nil, err
	}
	if err := waitForWallets(ctx, tx); err != nil {
		return nil, err
	}
	book, err := wallet.Open(ctx, tx, wallet.Wanted{Wallets: []uuid.UUID{found[owner]}, References: []wallet.Reference{refund(c.PurchaseID)}}, true)
	if err != nil {
		return nil, err
	}
	_, err = book.Refund(found[owner], wallet.Movement{Amount: c.bought.Amount, Reference: refund(c.PurchaseID),
		Description: "cancelled purchase " + c.PurchaseID.String()})
	if fault.CodeOf(err) == fault.InvalidRequest { // there is no room for it
		return nil, fault.New(fault.StateConflict, "the wallet cannot take the money back: %s", fault.From(err).Message)
	}
	if err != nil {
		return nil, fmt.Errorf("giveBack: %w", err)
	}
	return book, nil
}
