package refunds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/agenda"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
	"triprize/internal/store/refund"
)

// The names of our metadata at the provider.
const (
	MetaRefund   = "refund_id"
	MetaPurchase = "purchase_id"
	MetaCampaign = "campaign_id"
	MetaAttempt  = "attempt"
)

// Settings are how long things take.
type Settings struct {
	Lease   time.Duration // after this another worker may continue a refund; longer than a call
	Recheck time.Duration // a new refund that is not final is fetched this often, an old one more seldom
}

// Result is what a run has come to.
type Result string

// The results.
const (
	Nothing  Result = "nothing"  // the refund has changed, is another worker's, or was resolved by hand
	Waits    Result = "waits"    // for the provider
	Finished Result = "finished" // it has succeeded
	Refused  Result = "refused"  // by the provider; it waits for an operator
)

// keyLimit is how old a key may be to be used again; the provider knows it for 24 hours.
const keyLimit = 23 * time.Hour

// Runner does card refunds at the provider.
type Runner struct {
	db       postgres.Pool
	provider payprovider.Refunds
	settings Settings
	logger   *slog.Logger
	metrics  *metrics
}

// run is one run of a refund that this worker has claimed.
type run struct {
	*Runner
	*refund.Refund
	intentID string
	dispute  *payment.Dispute // of the charge
	was      refund.State     // in the table
}

// Run does a refund as far as it goes now. A failure at the provider is stored
// with the refund, which is due again in time. An error is a fault of the database: the
// refund is due again when the lease ends.
func (r *Runner) Run(ctx context.Context, item agenda.Item) (Result, error) {
	claimed, ok, err := refund.Claim(ctx, r.db, item, r.settings.Lease)
	if err != nil || !ok {
		return Nothing, err
	}
	paid, ok, err := payment.Get(ctx, r.db, claimed.PurchaseID)
	if err != nil {
		return Nothing, err
	}
	if !ok || paid.IntentID == nil {
		return Nothing, fmt.Errorf("refunds.Run(%s): purchase %s has no payment at the provider", claimed.ID, claimed.PurchaseID)
	}
	one := &run{Runner: r, Refund: &claimed, intentID: *paid.IntentID, dispute: paid.Dispute, was: claimed.State}
	one.hit("refunds.claimed")
	result, err := one.lead(ctx)
	if errors.Is(err, agenda.ErrFenced) { // somebody else goes on
		return Nothing, nil
	}
	return result, err
}

func (o *run) hit(name string) {
	failpoint.Hit(name, func() []string { return []string{o.PurchaseID.String()} })
}

// lead chooses the call, as in doc.go.
func (o *run) lead(ctx context.Context) (Result, error) {
	switch {
	case o.ProviderID != nil:
		got, err := call(ctx, o, func(ctx context.Context) (payprovider.Refund, error) { return o.provider.Refund(ctx, *o.ProviderID) })
		if err != nil {
			return o.put(ctx, err)
		}
		return o.apply(ctx, got)
	case o.Attempt == 0 && !o.State.Refused():
		return o.create(ctx, 1)
	}
	found, ok, err := o.look(ctx)
	switch {
	case err != nil:
		return o.put(ctx, err)
	case ok:
		return o.apply(ctx, found)
	case o.State.Refused(): // only an operator has it tried again
		return o.write(ctx)
	}
	return o.create(ctx, o.nextAttempt())
}

// nextAttempt is the attempt whose key is used next, when the provider has nothing of the
// present one: the same, unless its key may be forgotten, or what is stored under it at
// the provider is a failure that would only be repeated.
func (o *run) nextAttempt() int {
	const inVain = 3
	if o.KeyAge >= keyLimit || o.Faults > 0 && o.Faults%inVain == 0 {
		return o.Attempt + 1
	}
	return o.Attempt
}

// create makes the refund. Its key is stored first, and the lease renewed.
func (o *run) create(ctx context.Context, attempt int) (Result, error) {
	if o.dispute.HoldsMoney() {
		return o.disputed(ctx)
	}
	o.Attempt = attempt
	if err := refund.Write(ctx, o.db, o.Refund, o.settings.Lease, nil); err != nil {
		return Nothing, err
	}
	o.hit("refunds.attempt.stored")
	got, err := call(ctx, o, func(ctx context.Context) (payprovider.Refund, error) {
		return o.provider.CreateRefund(ctx, payprovider.NewRefund{
			Key: fmt.Sprintf("re:%s:%d", o.PurchaseID, o.Attempt), IntentID: o.intentID, Amount: o.Amount,
			Metadata: map[string]string{MetaRefund: o.ID.String(), MetaPurchase: o.PurchaseID.String(), MetaCampaign: o.CampaignID.String(),
				MetaAttempt: strconv.Itoa(o.Attempt)},
		})
	})
	if err == nil {
		return o.apply(ctx, got)
	}
	switch kindOf(err) {
	case payprovider.KindRefused, payprovider.KindConflict, payprovider.KindDeclined:
		return o.refused(ctx, err)
	}
	return o.put(ctx, err)
}

// disputed refuses to make the refund of a disputed charge: the bank has the money, and gives
// it to one of both. An operator has it tried again when the dispute is won.
func (o *run) disputed(ctx context.Context) (Result, error) {
	failure := fmt.Sprintf("disputed: the bank has the money, and decides (%s, %s)", o.dispute.ID, o.dispute.Status)
	o.State, o.Failure, o.Faults, o.Stuck = refund.Failed, &failure, 0, false
	return o.write(ctx)
}

// refused handles a refusal to make the refund: somebody may have refunded the charge by
// hand, which is as good.
func (o *run) refused(ctx context.Context, refusal error) (Result, error) {
	if err := refund.Write(ctx, o.db, o.Refund, o.settings.Lease, nil); err != nil { // renews the lease for another call
		return Nothing, err
	}
	found, ok, err := o.look(ctx)
	switch {
	case err != nil:
		return o.put(ctx, err)
	case ok:
		return o.apply(ctx, found)
	}
	failure := failureOf(refusal)
	o.State, o.Failure, o.Faults, o.Stuck = refund.Failed, &failure, 0, false
	return o.write(ctx)
}

// look finds what the provider has of this refund: the one with our id in its metadata,
// or one that somebody made by hand.
func (o *run) look(ctx context.Context) (payprovider.Refund, bool, error) {
	all, err := call(ctx, o, func(ctx context.Context) ([]payprovider.Refund, error) { return o.provider.RefundsOf(ctx, o.intentID) })
	if err != nil {
		return payprovider.Refund{}, false, err
	}
	found, ok := pick(all, o.Refund)
	return found, ok, nil
}

// call makes a call within the lease.
func call[T any](ctx context.Context, o *run, do func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, o.settings.Lease)
	defer cancel()
	got, err := do(ctx)
	o.hit("refunds.called")
	return got, err
}

// apply stores what the provider says of the refund.
func (o *run) apply(ctx context.Context, got payprovider.Refund) (Result, error) {
	if wrong := o.check(got); wrong != "" {
		return o.put(ctx, &payprovider.Error{Kind: payprovider.KindMismatch, Call: "refund", Message: wrong})
	}
	o.State, o.ProviderID, o.Failure, o.Faults, o.Stuck = stateOf(got.Status), &got.ID, nil, 0, false
	if o.State.Refused() {
		failure := got.Failure
		if failure == "" {
			failure = string(got.Status)
		}
		o.Failure = &failure
	}
	return o.write(ctx)
}

// check returns what is wrong with a refund that the provider says is ours.
func (o *run) check(got payprovider.Refund) string {
	switch {
	case got.IntentID != o.intentID:
		return fmt.Sprintf("%s is of intent %q, not of %s", got.ID, got.IntentID, o.intentID)
	case got.Amount != o.Amount || got.Currency != o.Currency:
		return fmt.Sprintf("%s gives back %d %s, not %d %s", got.ID, got.Amount, got.Currency, o.Amount, o.Currency)
	case got.ID == "" || stateOf(got.Status) == "":
		return fmt.Sprintf("%s has the status %q", got.ID, got.Status)
	}
	return ""
}

// write stores the new state, what it means for the purchase, and the step, together.
func (o *run) write(ctx context.Context) (Result, error) {
	var next *time.Duration
	if wait := o.wait(); wait > 0 {
		next = &wait
	}
	err := postgres.InTx(ctx, o.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		refund.QueueWrite(&b, o.Refund, 0, next)
		switch {
		case o.State == refund.Succeeded && o.was != refund.Succeeded:
			purchase.QueueRefunded(&b, o.PurchaseID)
		case o.State != refund.Succeeded && o.was == refund.Succeeded:
			purchase.QueueRefundFailed(&b, o.PurchaseID)
		}
		if o.State != o.was {
			payment.QueueSteps(&b, payment.Step{PurchaseID: o.PurchaseID, Event: steps[o.State], Detail: o.Failure})
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return Nothing, fmt.Errorf("refunds.write(%s): %w", o.ID, err)
	}
	o.hit("refunds.written")
	o.tell()
	return o.result(), nil
}

// wait is when to look at a refund again that the provider works on: soon while it is
// new, seldom when it is old. Others wait for an event.
func (o *run) wait() time.Duration {
	const mostOften, mostSeldom = 4, 6 * time.Hour
	if o.State != refund.Pending && o.State != refund.RequiresAction {
		return 0
	}
	return min(max(o.settings.Recheck, o.Age/mostOften), mostSeldom)
}

func (o *run) result() Result {
	switch {
	case o.State == refund.Succeeded:
		return Finished
	case o.State.Refused():
		return Refused
	}
	return Waits
}
