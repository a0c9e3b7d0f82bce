package audit

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/payprovider"
	"triprize/internal/store/payment"
)

// listedIntents compares every intent of the provider with its payment.
func (c *comparison) listedIntents(ctx context.Context, from, to time.Time) error {
	return inPages(func(yield func(payprovider.Intent) error) error { return c.provider.ListIntents(ctx, from, to, yield) },
		func(page []payprovider.Intent) error {
			ids := make([]string, len(page))
			for i, intent := range page {
				ids[i] = intent.ID
			}
			known, err := payment.OfIntents(ctx, c.db, ids)
			if err != nil {
				return err
			}
			for _, intent := range page {
				p, ok := known[intent.ID]
				if !ok && intent.Metadata[purchaseKey] == "" || c.seen[intent.ID] {
					continue
				}
				if err := c.intent(ctx, intent, p, ok); err != nil {
					return err
				}
			}
			return nil
		})
}

// intent compares one intent with its payment, if it has one here.
func (c *comparison) intent(ctx context.Context, there payprovider.Intent, here payment.Payment, known bool) error {
	c.seen[there.ID] = true
	c.report.Intents++
	v, entry := compareIntent(there, here, known)
	if v == differs { // one side may have moved since
		again, err := c.provider.Intent(ctx, there.ID)
		if err != nil {
			return err
		}
		there = again
		now, err := payment.OfIntents(ctx, c.db, []string{there.ID})
		if err != nil {
			return err
		}
		here, known = now[there.ID]
		v, entry = compareIntent(there, here, known)
		if v == differs && known && calledUnpaid(here) && there.Currency == here.Currency {
			if v, err = c.givenBack(ctx, there); err != nil {
				return err
			}
		}
	}
	c.received[there.ID] = there.Received
	c.totals(there.Currency).CapturedThere += there.Received
	if known {
		c.totals(here.Currency).CapturedHere += here.Received
	}
	c.note(v, entry)
	return nil
}

// calledUnpaid reports whether an operator has called a payment unpaid.
func calledUnpaid(p payment.Payment) bool {
	return p.ResolvedAs != nil && *p.ResolvedAs == payment.FoundUnpaid && p.Received == 0
}

// givenBack decides about an intent whose payment an operator has called unpaid: what a part
// of it had captured was given back at the provider before, as the guide says.
func (c *comparison) givenBack(ctx context.Context, there payprovider.Intent) (verdict, error) {
	refunds, err := c.provider.RefundsOf(ctx, there.ID)
	if err != nil {
		return differs, err
	}
	left := there.Received
	for _, r := range refunds {
		if r.Status == payprovider.RefundSucceeded {
			left -= r.Amount
		}
	}
	if left != 0 {
		return differs, nil
	}
	return agreed, nil
}

// compareIntent decides about one intent: captured there is resolved or returned here, and
// the other way round.
func compareIntent(there payprovider.Intent, here payment.Payment, known bool) (verdict, Entry) {
	e := Entry{PurchaseID: there.Metadata[purchaseKey], IntentID: there.ID, There: there.Received, Currency: there.Currency}
	if !known {
		e.What = "captured at the provider, and no payment here has this intent"
		if there.Received > 0 {
			return differs, e
		}
		return agreed, e
	}
	e.PurchaseID, e.Here = here.PurchaseID.String(), here.Received
	taken := here.Phase == payment.Settled || here.Phase == payment.RefundDue
	switch {
	case there.Metadata[purchaseKey] != here.PurchaseID.String():
		e.What = "the intent is of another purchase at the provider: " + there.Metadata[purchaseKey]
		return differs, e
	case there.Currency != here.Currency || there.Received > 0 && there.Received != here.Amount:
		e.What, e.Here = "another amount or currency than the payment's", here.Amount
		return differs, e
	case !here.Phase.Final() || here.DueAt != nil && !taken: // a final one that is due was woken
		e.What = "the payment is " + string(here.Phase)
		return underWay, e
	case taken && there.Received == 0:
		e.What = string(here.Phase) + " here, and not captured at the provider: " + string(there.Status)
		return differs, e
	case !taken && there.Received > 0:
		e.What = "captured at the provider, and " + string(here.Phase) + " here"
		return differs, e
	}
	return agreed, e
}

// missingIntents looks for money that is captured here with intents that the provider did
// not list: those made near the ends of the span belong to another one.
func (c *comparison) missingIntents(ctx context.Context, from, to time.Time) error {
	var unseen []string
	err := payment.EachReceived(ctx, c.db, from, to, func(id string) {
		if !c.seen[id] {
			unseen = append(unseen, id)
		}
	})
	if err != nil {
		return err
	}
	for _, id := range unseen {
		there, err := c.provider.Intent(ctx, id)
		if err != nil && !gone(err) {
			return err
		}
		if err == nil && (there.CreatedAt.Before(from) || !there.CreatedAt.Before(to)) {
			continue
		}
		here, err := payment.OfIntents(ctx, c.db, []string{id})
		if err != nil {
			return err
		}
		p, known := here[id]
		if there.ID != "" { // made since the list was read
			if err := c.intent(ctx, there, p, known); err != nil {
				return err
			}
			continue
		}
		if known {
			c.totals(p.Currency).CapturedHere += p.Received
			c.note(differs, Entry{PurchaseID: p.PurchaseID.String(), IntentID: id, What: "captured here, and the provider does not know the intent",
				Here: p.Received, Currency: p.Currency})
		}
	}
	return nil
}

// purchaseOf returns the purchase in metadata, or zero.
func purchaseOf(metadata map[string]string) uuid.UUID {
	id, err := uuid.Parse(metadata[purchaseKey])
	if err != nil {
		return uuid.Nil
	}
	return id
}
