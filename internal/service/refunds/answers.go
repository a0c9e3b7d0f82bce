package refunds

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
)

// steps are the steps of the timeline that states are.
var steps = map[refund.State]string{
	refund.Pending:        payment.StepRefundPending,
	refund.RequiresAction: payment.StepRefundAction,
	refund.Succeeded:      payment.StepRefunded,
	refund.Failed:         payment.StepRefundFailed,
	refund.Canceled:       payment.StepRefundFailed,
}

// pick returns which of the refunds of an intent is the one that we want, if any: one with its id or,
// in the metadata, ours, unless another row has it, or it is a failure of an earlier attempt. One that
// gives money back comes before one that does not, and then the one whose id we have.
func pick(all []payprovider.Refund, wanted *refund.Refund, rows []refund.Refund) (found payprovider.Refund, ok bool) {
	best := 0
	for _, one := range all {
		refused, known := refund.StateOf(one.Status).Refused(), text(wanted.ProviderID) == one.ID
		stale := refused && !known && one.Metadata[metaAttempt] != strconv.Itoa(wanted.Attempt)
		others := slices.ContainsFunc(rows, func(r refund.Refund) bool { return r.ID != wanted.ID && text(r.ProviderID) == one.ID })
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
	if err := refund.Write(ctx, o.db, o.Refund, 0, &next); err != nil {
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
	case o.State == refund.Succeeded:
		o.logger.Info("a refund has succeeded", "refund", o.ID, "purchase", o.PurchaseID, "provider_id", text(o.ProviderID))
	case o.was == refund.Succeeded:
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
