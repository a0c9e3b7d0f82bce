package refunds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// steps are the steps of the timeline that states are.
var steps = map[payment.RefundState]string{
	payment.RefundPending:        payment.StepRefundPending,
	payment.RefundRequiresAction: payment.StepRefundAction,
	payment.RefundSucceeded:      payment.StepRefunded,
	payment.RefundFailed:         payment.StepRefundFailed,
	payment.RefundCanceled:       payment.StepRefundFailed,
}

// pick returns which of the refunds of an intent is the one that we want, if any: one with its id or,
// in the metadata, ours, unless another row has it, or it is a failure of an earlier attempt. One that
// gives money back comes before one that does not, and then the one whose id we have.
func pick(all []payprovider.Refund, wanted *payment.Refund, rows []payment.Refund) (found payprovider.Refund, ok bool) {
	best := 0
	for _, one := range all {
		refused, known := payment.RefundStateOf(one.Status).Refused(), text(wanted.ProviderID) == one.ID
		stale := refused && !known && one.Metadata[metaAttempt] != strconv.Itoa(wanted.Attempt)
		others := slices.ContainsFunc(rows, func(r payment.Refund) bool { return r.ID != wanted.ID && text(r.ProviderID) == one.ID })
		if !known && one.Metadata[metaRefund] != wanted.ID.String() || stale || others {
			continue
		}
		rank := 1
		if known {
			rank++
		}
		if !refused {
			rank += 2
		}
		if rank > best {
			found, ok, best = one, true, rank
		}
	}
	return found, ok
}

// kindOf returns the kind of a failed call. One that is not the provider's own may have
// had its effect.
func kindOf(err error) payprovider.ErrorKind {
	if e, ok := errors.AsType[*payprovider.Error](err); ok {
		return e.Kind
	}
	return payprovider.KindUnknown
}

// failureOf returns why the provider has refused a refund, for people.
func failureOf(err error) string {
	e, ok := errors.AsType[*payprovider.Error](err)
	switch {
	case !ok:
		return err.Error()
	case e.Code == "":
		return e.Message
	case e.Message == "":
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// put puts a refund off after a call that has not told its state. A refund that it may have
// made is looked for next time.
func (o *run) put(ctx context.Context, err error) (Result, error) {
	kind := kindOf(err)
	o.metrics.faults.WithLabelValues(string(kind)).Inc()
	o.Faults++
	if !o.State.Refused() { // that has a reason of its own
		failure := failureOf(err)
		o.Failure = &failure
	}
	next := pause(o.Faults, kind)
	if o.answered || kind != payprovider.KindUnavailable && kind != payprovider.KindUnknown && kind != payprovider.KindLimited { // these tell nothing new
		o.Stuck = isStuck(err)
	}
	if e, ok := errors.AsType[*payprovider.Error](err); ok && !e.RetryAt.IsZero() {
		next = max(next, time.Until(e.RetryAt))
	}
	log := o.logger.Warn
	if isStuck(err) {
		log = o.logger.Error // time alone will not help
	}
	log("a refund waits", "refund", o.ID, "purchase", o.PurchaseID, "state", o.State, "again_in", next, "error", err)
	if err := payment.WriteRefund(ctx, o.db, o.Refund, 0, &next); err != nil {
		return Nothing, err
	}
	return Waits, nil
}

// isOtherUse reports whether the idempotency key was used for something else.
func isOtherUse(err error) bool {
	const codeOtherUse = "idempotency_error"
	e, ok := errors.AsType[*payprovider.Error](err)
	return ok && e.Code == codeOtherUse
}

// isStuck reports whether a failed look or call says that time alone will not help. An
// idempotency key that was used for something else is replaced, so that is none.
func isStuck(err error) bool {
	e, ok := errors.AsType[*payprovider.Error](err)
	if !ok || isOtherUse(err) {
		return false
	}
	switch e.Kind {
	case payprovider.KindMismatch, payprovider.KindRefused, payprovider.KindConflict, payprovider.KindForbidden:
		return true
	}
	return false
}

// pause is how long a refund waits after so many faults in a row: 1, 2, 4 … 60 s, up to 5
// minutes when the key is refused, and an hour when a person has to look at the refund.
func pause(faults int, kind payprovider.ErrorKind) time.Duration {
	const longest, forKey, forPeople = time.Minute, 5 * time.Minute, time.Hour
	switch kind {
	case payprovider.KindUnavailable, payprovider.KindUnknown, payprovider.KindLimited:
		return min(time.Second<<min(faults-1, 6), longest)
	case payprovider.KindForbidden:
		return min(time.Second<<min(faults-1, 9), forKey)
	}
	return forPeople
}

// tell logs and counts a new state.
func (o *run) tell() {
	if o.more > 0 {
		o.metrics.twice.Inc()
		o.logger.Error("money was given back twice: by others, and by a call of ours that was under way", "refund", o.ID, "purchase", o.PurchaseID,
			"too_much", int64(o.more), "currency", o.Currency)
	}
	if o.State == o.was {
		return
	}
	o.metrics.states.WithLabelValues(string(o.State)).Inc()
	switch {
	case o.State == payment.RefundSucceeded:
		o.logger.Info("a refund has succeeded", "refund", o.ID, "purchase", o.PurchaseID, "provider_id", text(o.ProviderID))
	case o.was == payment.RefundSucceeded:
		o.logger.Error("a refund has failed that had succeeded; it waits for an operator", "refund", o.ID, "purchase", o.PurchaseID, "state", o.State, "failure", text(o.Failure))
	case o.State.Refused():
		o.logger.Error("the provider has refused a refund; it waits for an operator", "refund", o.ID, "purchase", o.PurchaseID, "failure", text(o.Failure))
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// note notes those refunds of the intent that are not ours, in the table and in the timeline.
// One that was made under the id of ours is not ours, either, when ours was resolved by hand, or is
// another one: mine. The list is not older than the refund as it was claimed, or nothing is noted.
func (o *run) note(ctx context.Context, all []payprovider.Refund, rows []payment.Refund, mine payprovider.Refund) error {
	there, twice := o.notOurs(all, rows, mine.ID)
	if len(there) == 0 {
		return nil
	}
	var noted []payment.NotedRefund
	err := postgres.InTx(ctx, o.db, func(tx pgx.Tx) error {
		if _, err := payment.LockSubjects(ctx, tx, nil, []uuid.UUID{o.PurchaseID}); err != nil {
			return err
		}
		now, err := payment.GetRefund(ctx, tx, access.Everything(), o.ID)
		if err != nil || now.Version != o.Version {
			return errors.Join(err, lease.ErrFenced)
		}
		if noted, err = payment.NoteRefunds(ctx, tx, there); err != nil {
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
		if o.State == payment.RefundResolved && text(o.ProviderID) == n.ProviderID { // see payment.NoteRefunds
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
func (o *run) notOurs(all []payprovider.Refund, rows []payment.Refund, mine string) (there []payment.ToldRefund, twice map[string]bool) {
	ours, noted := make(map[string]payment.Refund), make(map[string]bool)
	for _, r := range rows {
		ours[r.ID.String()] = r
		noted[text(r.ProviderID)] = r.Reason == payment.RefundOutOfBand
	}
	twice = make(map[string]bool)
	for _, one := range all {
		state := payment.RefundStateOf(one.Status)
		r, known := ours[one.Metadata[metaRefund]]
		switch known = known && !noted[one.ID]; {
		case state == "" || one.Amount <= 0 || known && state.Refused():
			continue
		case known && r.State != payment.RefundResolved:
			if r.ID == o.ID && one.ID == mine || text(r.ProviderID) == one.ID || r.ID != o.ID && r.ProviderID == nil {
				continue
			}
			twice[one.ID] = true
		}
		there = append(there, payment.ToldRefund{ProviderID: one.ID, PurchaseID: o.PurchaseID, Amount: one.Amount, Currency: one.Currency, State: state})
	}
	return there, twice
}

func (o *run) queueNoted(b *pgx.Batch, n payment.NotedRefund, twice bool) {
	if n.Fresh && !n.State.Refused() {
		how := "and not by us"
		switch {
		case twice:
			how = "under the id of ours, beside ours"
		case o.State == payment.RefundResolved:
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
	before, err := payment.LeftToRefund(ctx, o.db, o.ID)
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
	left, err := payment.LeftToRefund(ctx, o.db, o.ID)
	if err != nil {
		return Nothing, err
	}
	tooMuch := o.Amount - left.Debt
	said := "paid twice: " + money.Currency(o.Currency).Format(tooMuch) + " too much, by hand and at the provider"
	twice := tooMuch > 0 && (left.Debt < before.Debt || o.Amount > 0 && text(o.Failure) != said) // of one over 0, others had given too much before
	if twice {
		o.Failure = &said
	}
	if err := payment.WriteRefund(ctx, o.db, o.Refund, 0, next); err != nil {
		return Nothing, err
	}
	if twice {
		o.metrics.twice.Inc()
		o.logger.Error("money was given back twice: by hand, as somebody has said, and at the provider", "refund", o.ID, "purchase", o.PurchaseID,
			"by_hand", int64(o.Amount), "too_much", int64(tooMuch), "currency", o.Currency)
	}
	return o.result(), nil
}
