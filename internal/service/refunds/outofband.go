package refunds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/agenda"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
	"triprize/internal/store/refund"
)

// note notes those refunds of the intent that are not ours, in the table and in the timeline.
// One that was made under the id of ours is not ours, either, when ours was resolved by hand, or is
// another one: mine. The list is not older than the refund as it was claimed, or nothing is noted.
func (o *run) note(ctx context.Context, all []payprovider.Refund, rows []refund.Refund, mine payprovider.Refund) error {
	there, twice := o.notOurs(all, rows, mine.ID)
	if len(there) == 0 {
		return nil
	}
	var noted []refund.Noted
	err := postgres.InTx(ctx, o.db, func(tx pgx.Tx) error {
		if _, err := payment.LockSubjects(ctx, tx, nil, []uuid.UUID{o.PurchaseID}); err != nil {
			return err
		}
		now, err := refund.Get(ctx, tx, access.Everything(), o.ID)
		if err != nil || now.Version != o.Version {
			return errors.Join(err, agenda.ErrFenced)
		}
		if noted, err = refund.Note(ctx, tx, there); err != nil {
			return err
		}
		var b pgx.Batch
		for _, n := range noted {
			o.queueNoted(&b, n, twice[n.ProviderID])
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return fmt.Errorf("refunds.note(%s): %w", o.ID, err)
	}
	for _, n := range noted {
		if o.State == refund.Resolved && text(o.ProviderID) == n.ProviderID { // see refund.Note
			o.ProviderID = nil
		}
		o.logger.Warn("a refund at the provider is not ours", "purchase", o.PurchaseID, "refund", n.ProviderID, "amount", int64(n.Amount),
			"currency", n.Currency, "state", n.State)
		if twice[n.ProviderID] && n.Fresh {
			o.metrics.twice.Inc()
			o.logger.Error("money was given back twice: by two refunds under one id of ours", "refund", o.ID, "purchase", o.PurchaseID,
				"second", n.ProviderID, "too_much", int64(n.Amount), "currency", n.Currency)
		}
	}
	return nil
}

// notOurs returns the refunds of the intent that are not of our rows: the provider's id decides, and
// where we do not have one yet, ours in the metadata. twice are those beside the one that was made for
// a row. An attempt that has failed is nobody's.
func (o *run) notOurs(all []payprovider.Refund, rows []refund.Refund, mine string) (there []refund.Told, twice map[string]bool) {
	ours, noted := make(map[string]refund.Refund), make(map[string]bool)
	for _, r := range rows {
		ours[r.ID.String()] = r
		noted[text(r.ProviderID)] = r.Reason == refund.OutOfBand
	}
	twice = make(map[string]bool)
	for _, one := range all {
		state := refund.StateOf(one.Status)
		r, known := ours[one.Metadata[metaRefund]]
		switch known = known && !noted[one.ID]; {
		case state == "" || one.Amount <= 0 || known && state.Refused():
			continue
		case known && r.State != refund.Resolved:
			if r.ID == o.ID && one.ID == mine || text(r.ProviderID) == one.ID || r.ID != o.ID && r.ProviderID == nil {
				continue
			}
			twice[one.ID] = true
		}
		there = append(there, refund.Told{ProviderID: one.ID, PurchaseID: o.PurchaseID, Amount: one.Amount, Currency: one.Currency, State: state})
	}
	return there, twice
}

func (o *run) queueNoted(b *pgx.Batch, n refund.Noted, twice bool) {
	if n.Fresh && !n.State.Refused() {
		how := "and not by us"
		switch {
		case twice:
			how = "under the id of ours, beside ours"
		case o.State == refund.Resolved:
			how = "although ours was resolved by hand"
		}
		detail := n.Made(how)
		payment.QueueSteps(b, payment.Step{PurchaseID: o.PurchaseID, Event: payment.StepOutOfBand, Detail: &detail})
	}
	if n.State.Refused() {
		purchase.QueueFollow(b, o.PurchaseID)
	}
	if n.State.Refused() && !n.Fresh {
		detail := n.Broken()
		payment.QueueSteps(b, payment.Step{PurchaseID: o.PurchaseID, Event: payment.StepOutOfBandFailed, Detail: &detail})
	}
}

// confirm lists what the provider has of a refund that was resolved by hand, until it has answered:
// only what is there now says whether the money was given back twice. What is said once is kept in
// failure, also when a worker ends between the list and this.
func (o *run) confirm(ctx context.Context) (Result, error) {
	before, err := refund.Left(ctx, o.db, o.ID)
	if err != nil {
		return Nothing, err
	}
	var next *time.Duration
	if _, _, err := o.look(ctx); err != nil {
		o.Faults++
		wait := pause(o.Faults, kindOf(err))
		next = &wait
		o.logger.Warn("it is not known whether a refund that was resolved by hand was made, too", "refund", o.ID, "purchase", o.PurchaseID, "again_in", wait, "error", err)
	} else {
		o.Faults = 0
	}
	left, err := refund.Left(ctx, o.db, o.ID)
	if err != nil {
		return Nothing, err
	}
	tooMuch := o.Amount - left.Debt
	said := "paid twice: " + money.Currency(o.Currency).Format(tooMuch) + " too much, by hand and at the provider"
	twice := tooMuch > 0 && (left.Debt < before.Debt || o.Amount > 0 && text(o.Failure) != said) // of one over 0, others had given too much before
	if twice {
		o.Failure = &said
	}
	if err := refund.Write(ctx, o.db, o.Refund, 0, next); err != nil {
		return Nothing, err
	}
	if twice {
		o.metrics.twice.Inc()
		o.logger.Error("money was given back twice: by hand, as somebody has said, and at the provider", "refund", o.ID, "purchase", o.PurchaseID,
			"by_hand", int64(o.Amount), "too_much", int64(tooMuch), "currency", o.Currency)
	}
	return o.result(), nil
}
