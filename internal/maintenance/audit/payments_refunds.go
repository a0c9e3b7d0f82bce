package audit

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/payprovider"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
)

// listedRefunds compares every refund of the provider with ours.
func (c *comparison) listedRefunds(ctx context.Context, from, to time.Time) error {
	return inPages(func(yield func(payprovider.Refund) error) error { return c.provider.ListRefunds(ctx, from, to, yield) },
		func(page []payprovider.Refund) error {
			books, err := c.readRefunds(ctx, page)
			if err != nil {
				return err
			}
			for _, r := range page {
				if !books.isOurs(r) || c.seen[r.ID] {
					continue
				}
				if err := c.refund(ctx, r, books); err != nil {
					return err
				}
			}
			return nil
		})
}

// refundBooks is what we know of refunds of the provider.
type refundBooks struct {
	byID       map[string]refund.Refund      // by the provider's id
	byPurchase map[uuid.UUID][]refund.Refund // of the purchases of their intents
	payments   map[string]payment.Payment    // by intent
}

func (c *comparison) readRefunds(ctx context.Context, page []payprovider.Refund) (b refundBooks, err error) {
	ids, intents := make([]string, len(page)), make([]string, len(page))
	for i, r := range page {
		ids[i], intents[i] = r.ID, r.IntentID
	}
	if b.byID, err = refund.OfProvider(ctx, c.db, ids); err != nil {
		return b, err
	}
	if b.payments, err = payment.OfIntents(ctx, c.db, intents); err != nil {
		return b, err
	}
	var purchases []uuid.UUID
	for _, r := range page {
		if id := b.purchaseOf(r); id != uuid.Nil {
			purchases = append(purchases, id)
		}
	}
	b.byPurchase, err = refund.OfPurchases(ctx, c.db, purchases)
	return b, err
}

func (b refundBooks) purchaseOf(r payprovider.Refund) uuid.UUID {
	if p, ok := b.payments[r.IntentID]; ok {
		return p.PurchaseID
	}
	return purchaseOf(r.Metadata)
}

func (b refundBooks) isOurs(r payprovider.Refund) bool {
	_, known := b.byID[r.ID]
	return known || b.purchaseOf(r) != uuid.Nil
}

// refund compares one refund with ours.
func (c *comparison) refund(ctx context.Context, there payprovider.Refund, books refundBooks) error {
	c.seen[there.ID] = true
	v, entry := books.compare(there)
	if v == differs {
		if _, known := books.byID[there.ID]; !known {
			if released, err := c.released(ctx, there.IntentID); err != nil || released {
				return err
			}
		}
		again, err := c.provider.Refund(ctx, there.ID) // one side may have moved since
		if err != nil {
			return err
		}
		there = again
		if books, err = c.readRefunds(ctx, []payprovider.Refund{there}); err != nil {
			return err
		}
		v, entry = books.compare(there)
	}
	c.report.Refunds++
	if there.Status == payprovider.RefundSucceeded {
		c.totals(there.Currency).RefundedThere += there.Amount
	}
	if here, ok := books.byID[there.ID]; ok && here.State == refund.Succeeded {
		c.totals(here.Currency).RefundedHere += here.Amount
	}
	c.note(v, entry)
	return nil
}

// released reports whether an intent has received nothing: then its refund has released what
// a card had authorized, and gave nothing back.
func (c *comparison) released(ctx context.Context, intentID string) (bool, error) {
	if received, seen := c.received[intentID]; seen {
		return received == 0, nil
	}
	intent, err := c.provider.Intent(ctx, intentID)
	if gone(err) {
		return false, nil
	}
	return err == nil && intent.Received == 0, err
}

// compare decides about one refund: succeeded there is succeeded here, and the other way
// round.
func (b refundBooks) compare(there payprovider.Refund) (verdict, Entry) {
	e := Entry{IntentID: there.IntentID, RefundID: there.ID, There: there.Amount, Currency: there.Currency}
	if id := b.purchaseOf(there); id != uuid.Nil {
		e.PurchaseID = id.String()
	}
	back := there.Status == payprovider.RefundSucceeded
	here, known := b.byID[there.ID]
	if !known {
		return b.compareUnknown(there, e)
	}
	e.PurchaseID, e.Here = here.PurchaseID.String(), here.Amount
	waits := here.State == refund.Open || here.State == refund.Pending || here.State == refund.RequiresAction || here.DueAt != nil
	switch {
	case there.Amount != here.Amount || there.Currency != here.Currency:
		e.What = "another amount or currency than the refund's"
		return differs, e
	case waits:
		e.What = "the refund is " + string(here.State) + ", at the provider " + string(there.Status)
		return underWay, e
	case back != (here.State == refund.Succeeded):
		e.What = "the refund is " + string(here.State) + ", at the provider " + string(there.Status)
		return differs, e
	}
	return agreed, e
}

// compareUnknown decides about a refund of our money whose id is not known here: one that
// is still open will find it; a failed one is an earlier attempt, or somebody's try.
func (b refundBooks) compareUnknown(there payprovider.Refund, e Entry) (verdict, Entry) {
	if there.Status == payprovider.RefundFailed || there.Status == payprovider.RefundCanceled {
		return agreed, e
	}
	if p, ok := b.payments[there.IntentID]; ok && calledUnpaid(p) { // its intent is compared with all of its refunds
		return agreed, e
	}
	for _, here := range b.byPurchase[b.purchaseOf(there)] {
		if here.Method == refund.Card && here.State == refund.Open {
			e.Here, e.What = here.Amount, "the refund is open, at the provider "+string(there.Status)
			return underWay, e
		}
	}
	e.What = "refunded at the provider (" + string(there.Status) + "), and no refund here has its id"
	return differs, e
}

// missingRefunds looks for refunds that have succeeded here and that the provider did not
// list.
func (c *comparison) missingRefunds(ctx context.Context, from, to time.Time) error {
	var unseen []string
	err := refund.EachSucceeded(ctx, c.db, from, to, func(id string) {
		if !c.seen[id] {
			unseen = append(unseen, id)
		}
	})
	if err != nil {
		return err
	}
	for _, id := range unseen {
		there, err := c.provider.Refund(ctx, id)
		switch {
		case err == nil && (there.CreatedAt.Before(from) || !there.CreatedAt.Before(to)): // of another span
			continue
		case err == nil: // made since the list was read
			books, err := c.readRefunds(ctx, []payprovider.Refund{there})
			if err != nil {
				return err
			}
			if err := c.refund(ctx, there, books); err != nil {
				return err
			}
			continue
		case !gone(err):
			return err
		}
		here, err := refund.OfProvider(ctx, c.db, []string{id})
		if err != nil {
			return err
		}
		if r, ok := here[id]; ok && r.State == refund.Succeeded {
			c.totals(r.Currency).RefundedHere += r.Amount
			c.note(differs, Entry{PurchaseID: r.PurchaseID.String(), RefundID: id, What: "refunded here, and the provider does not know the refund",
				Here: r.Amount, Currency: r.Currency})
		}
	}
	return nil
}
