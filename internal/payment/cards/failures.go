package cards

import (
	"context"
	"math/rand/v2"
	"regexp"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
)

const (
	longestPause = 30 * time.Second // after failed calls; longer only if the provider says so
	longestRetry = 5 * time.Minute  // that the provider may ask for; also after calls with a key that is refused
	longestCheck = time.Hour        // between two checks of what waits for people, or for a slow method that is late
	lateShare    = 10               // a late payment is checked after a tenth of its time so far
)

// failed decides what follows a failed call.
func (r *run) failed(ctx context.Context, c move, err error) (Outcome, error) {
	e := payprovider.AsError(err, string(c))
	r.metrics.faults.WithLabelValues(string(c), string(e.Kind)).Inc()
	switch {
	case e.Kind == payprovider.KindDeclined && (c == create || c == confirm):
		r.intent.Status, r.decline, r.confirmed = payprovider.RequiresPaymentMethod, e.Decline, r.confirmed || c == confirm
		if r.decline == nil {
			r.decline = &payprovider.Decline{Code: e.Code, Message: e.Message}
		}
		return r.goOn(nil)
	case e.Kind == payprovider.KindRefused, e.Kind == payprovider.KindConflict, e.Kind == payprovider.KindDeclined:
		if c == fetch {
			return r.unexpectedState(ctx, err.Error())
		}
		r.logger.Info("a call of the provider was refused", "purchase", r.p.PurchaseID, "call", string(c), "error", err)
		r.intent.Status, r.refused, r.confirmed = "", c, r.confirmed || c == confirm // how is it really? see there
		r.decline = &payprovider.Decline{Code: e.Code, Message: e.Message}
		return r.goOn(nil)
	case e.Kind == payprovider.KindMismatch && !e.IsKeyReused():
		return r.mismatch(ctx, c, err)
	}
	return r.snooze(ctx, c, e)
}

// snooze releases a payment after a failed call. It is not the buyer's fault, so the
// deadline of the reservation moves along.
func (r *run) snooze(ctx context.Context, c move, e *payprovider.Error) (Outcome, error) {
	r.intent.Status = "" // it may have been done
	changed := r.p
	changed.Faults++
	longest := longestPause
	if e.Kind == payprovider.KindForbidden {
		longest = longestRetry
	}
	pause := backoff(changed.Faults, longest)
	if until := time.Until(e.RetryAt); until > pause {
		pause = min(until, longestRetry)
	}
	if !r.p.Resolved() {
		reason := r.waitAfter(e.Kind)
		changed.WaitingFor, changed.LastError = &reason, inWords(e.Error())
	}
	if c == create && (e.Kind == payprovider.KindMismatch || e.Kind == payprovider.KindUnknown && changed.Faults > 1) {
		changed.Attempt++ // what is stored under the old key would come back for ever
	}
	r.logger.Warn("a payment waits for the provider", "purchase", r.p.PurchaseID, "call", string(c), "faults", changed.Faults, "error", e)
	steps := r.extend(&changed, pause)
	return r.waits(r.store(ctx, changed, payment.Always, 0, pause, steps...))
}

// waitAfter is what a payment waits for after a failed call. One that is an operator's stays
// so until the provider has answered.
func (r *run) waitAfter(kind payprovider.ErrorKind) payment.BlockedReason {
	switch {
	case kind == payprovider.KindForbidden, r.p.WaitsFor() == payment.WaitsForOperator, r.overdue():
		return payment.WaitsForOperator
	case kind == payprovider.KindUnavailable:
		return payment.WaitsForProvider
	case kind == payprovider.KindLimited:
		return payment.WaitsForTurn
	}
	return payment.WaitsForAnswer
}

// overdue reports whether money is still being taken after every extension of its
// reservation. The positions wait for it, and the draw of an ended sale.
func (r *run) overdue() bool { return r.p.Phase == payment.Capturing && !r.now().Before(r.p.Latest) }

// spare is what a payment has left at least at the next check: its task may have to wait.
const spare = 5 * time.Second

// extend moves the deadline by the time that this run has lost and the next pause, so
// that there is as much left at the next check as there was at this one. The steps report
// the first time in a row.
func (r *run) extend(changed *payment.Payment, pause time.Duration) (steps []string) {
	if !changed.Phase.BeforeCapture() || changed.Over || !changed.Deadline.Before(changed.Latest) {
		return nil
	}
	after := changed.Deadline.Add(time.Since(r.began) + pause)
	if soonest := r.now().Add(pause + spare); after.Before(soonest) {
		after = soonest
	}
	if changed.Deadline = after; after.After(changed.Latest) {
		changed.Deadline = changed.Latest
	}
	if changed.Faults == 1 {
		steps = append(steps, payment.StepExtended)
	}
	return steps
}

// mismatch is for answers that are not about our payment. Nothing is done with them.
func (r *run) mismatch(ctx context.Context, c move, err error) (Outcome, error) {
	r.metrics.mismatches.WithLabelValues(string(c)).Inc()
	r.intent.Status = ""
	return r.unexpectedState(ctx, err.Error())
}

// unexpectedState releases a payment that a person must check. It is checked again, slowly:
// perhaps the fault has gone. A payment that an operator has resolved is released silently, as
// long as the provider says what it said when the operator checked.
func (r *run) unexpectedState(ctx context.Context, what string) (Outcome, error) {
	if r.p.Resolved() && sameError(r.p.LastError, inWords(what)) {
		changed := r.p // an operator has seen just this, and has said how it ended
		changed.Faults, changed.WaitingFor = 0, nil
		return Nothing, r.storeAll(ctx, changed, payment.Always, 0, nil, nil)
	}
	r.metrics.unexpected.Inc()
	r.logger.Error("a payment waits for an operator: the provider says what cannot be", "purchase", r.p.PurchaseID,
		"phase", string(r.p.Phase), "intent", postgres.ValueOf(r.p.IntentID), "what", what)
	changed := r.p
	changed.Faults++
	reason := payment.WaitsForOperator
	changed.WaitingFor, changed.LastError = &reason, inWords(what)
	pause := min(r.settings.Recheck<<min(changed.Faults, 10), longestCheck)
	if changed.IntentID == nil { // its time ends it
		pause = min(pause, max(r.left(&r.p), time.Second))
	}
	return r.waits(r.store(ctx, changed, payment.Always, 0, max(pause, time.Second)))
}

// maxLastError bounds what is stored of an answer, in bytes.
const maxLastError = 500

// inWords is what the provider has said, as it is stored for operators.
func inWords(what string) *string {
	if len(what) > maxLastError {
		what = what[:maxLastError]
	}
	return text(what)
}

// requestID is the part of an answer that is another one every time.
var requestID = regexp.MustCompile(` \(request [^)]*\)`)

func sameError(a, b *string) bool {
	return a != nil && b != nil && requestID.ReplaceAllString(*a, "") == requestID.ReplaceAllString(*b, "")
}

// backoff is 1, 2, 4 … seconds by the number of faults in a row, at most longest, plus up to
// a quarter, so that payments that failed together do not come back together.
func backoff(faults int, longest time.Duration) time.Duration {
	pause := min(time.Second<<min(max(faults-1, 0), 10), longest)
	return pause + rand.N(pause/4) //nolint:gosec // a jitter is no secret
}

// release releases a payment that waits for its buyer, its method or a time.
func (r *run) release(ctx context.Context, pause time.Duration) (Outcome, error) {
	changed := r.p
	if r.intent.Status != "" {
		r.answered(&changed)
		if r.overdue() {
			reason := payment.WaitsForOperator
			changed.WaitingFor, changed.LastError = &reason, text("the provider is still taking the money, after every extension of the reservation")
		}
	}
	return r.waits(r.store(ctx, changed, payment.Always, 0, pause))
}

// left is the time until a payment is given up; negative: it is over.
func (r *run) left(p *payment.Payment) time.Duration { return p.OverAt().Sub(r.now()) }

// shortestPause lies between the deadline and the check of what is over: by then it is
// over by the database's clock, too.
const shortestPause = 50 * time.Millisecond

// pauseOf is after which time a payment that waits is checked again, if no event comes
// before: after Recheck, or when its deadline is over. A late payment is checked less
// and less often: nothing of ours waits for it.
func (r *run) pauseOf(p *payment.Payment) time.Duration {
	pause := r.settings.Recheck
	switch left := r.left(p); {
	case p.Phase == payment.CardDeclined: // no event comes before its buyer does
		return max(left, 0) + shortestPause
	case p.Phase == payment.Late || p.Phase.Final():
		return min(pause+max(-left, 0)/lateShare, max(pause, longestCheck))
	case p.Phase != payment.Capturing && left > -shortestPause && left < pause:
		return left + shortestPause
	}
	return pause
}
