package cards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// store writes changed in the place of r.p, with steps, and with what the purchase and
// the job show of it, in one transaction. extend renews the lease; with 0 the payment is
// released and is due after pause. When the guard does not hold because the deadline is
// over, r.p is as before, and Over: that is no error.
func (r *run) store(ctx context.Context, changed payment.Payment, guard payment.Precondition, extend, pause time.Duration, steps ...string) error {
	return r.storeAll(ctx, changed, guard, extend, &pause, steps)
}

// sleep releases the payment. It is due when an event comes, and not before.
func (r *run) sleep(ctx context.Context) error {
	changed := r.p
	r.answered(&changed)
	return r.storeAll(ctx, changed, payment.Always, 0, nil, nil)
}

func (r *run) storeAll(ctx context.Context, changed payment.Payment, guard payment.Precondition, extend time.Duration, pause *time.Duration, steps []string) error {
	moved := changed.Phase != r.p.Phase
	if r.intent.Status != "" {
		status := string(r.intent.Status)
		changed.IntentStatus, changed.Livemode = &status, &r.settings.Livemode
	}
	if moved {
		r.hit(string(changed.Phase) + ".store")
	}
	began := time.Now()
	err := r.write(ctx, &changed, guard, extend, pause, r.stepsOf(changed, steps))
	if errors.Is(err, lease.ErrFenced) && guard == payment.BeforeDeadline {
		return r.checkDeadline(ctx)
	}
	if err != nil {
		return err
	}
	r.announce = r.announce || changed.Phase.AwaitsBuyer() != r.p.Phase.AwaitsBuyer() || (changed.WaitingFor != nil) != (r.p.WaitingFor != nil) || r.newStep(changed)
	r.p = changed
	if extend > 0 {
		r.leased = began
	}
	if moved {
		r.metrics.phases.WithLabelValues(string(changed.Phase)).Inc()
		r.hit(string(changed.Phase) + ".stored")
		r.logPhase()
	}
	return nil
}

// logPhase logs what a buyer may complain of: that the card was declined, that the money was taken, or
// that the payment has ended without it.
func (r *run) logPhase() {
	line := []any{"purchase", r.p.PurchaseID, "job", r.p.PurchaseID}
	if r.p.IntentID != nil {
		line = append(line, "intent", *r.p.IntentID)
	}
	if r.p.Decline != nil {
		line = append(line, "decline", cmp.Or(r.p.Decline.DeclineCode, r.p.Decline.Code))
	}
	switch r.p.Phase {
	case payment.CardDeclined:
		r.logger.Info("a card was declined", line...)
	case payment.Captured:
		r.logger.Info("a payment has succeeded", line...)
	case payment.Ended:
		r.logger.Info("a payment has ended", append(line, "ending", *r.p.Ending)...) // the table has one in this phase
	}
}

// write is the transaction. Most writes change nothing that the purchase and the job
// show: then it is one statement.
func (r *run) write(ctx context.Context, changed *payment.Payment, guard payment.Precondition, extend time.Duration, pause *time.Duration, steps []payment.Step) error {
	var shown pgx.Batch
	r.queueShown(&shown, *changed, pause)
	if shown.Len() == 0 {
		return payment.Write(ctx, r.db, changed, guard, extend, pause, steps...)
	}
	return postgres.InTx(ctx, r.db, func(tx pgx.Tx) error {
		if err := payment.Write(ctx, tx, changed, guard, extend, pause, steps...); err != nil {
			return err
		}
		return tx.SendBatch(ctx, &shown).Close()
	})
}

// checkDeadline returns why a guarded write was refused: the payment was changed, or its
// time is over.
func (r *run) checkDeadline(ctx context.Context) error {
	now, ok, err := payment.Get(ctx, r.db, r.p.PurchaseID)
	switch {
	case err != nil:
		return err
	case !ok || now.Version != r.p.Version:
		return lease.ErrFenced
	case !now.Over:
		return fmt.Errorf("payment %s: a guarded write was refused, but nothing has changed", r.p.PurchaseID)
	}
	r.p.Over = true
	return nil
}

func (r *run) stepsOf(p payment.Payment, events []string) []payment.Step {
	steps := make([]payment.Step, len(events))
	for i, event := range events {
		steps[i] = payment.Step{PurchaseID: p.PurchaseID, Event: event}
		if event == payment.StepDeclined && p.Decline != nil {
			steps[i].Detail, steps[i].Declined = postgres.Nullable(cmp.Or(p.Decline.DeclineCode, p.Decline.Code)), r.declinedByBank()
		}
	}
	return steps
}

// queueShown writes what the purchase, its job and the job of its cancellation show, if
// that changes. It locks the purchase and then the jobs, as everybody does.
func (r *run) queueShown(b *pgx.Batch, p payment.Payment, pause *time.Duration) {
	awaiting, waiting := p.Phase.AwaitsBuyer(), p.WaitingFor != nil
	wasAwaiting, wasWaiting := r.p.Phase.AwaitsBuyer(), r.p.WaitingFor != nil
	anew := awaiting && wasAwaiting && p.Phase != r.p.Phase
	if anew { // its event reports it
		purchase.QueueAwaiting(b, p.PurchaseID, false)
	}
	if awaiting != wasAwaiting || anew {
		purchase.QueueAwaiting(b, p.PurchaseID, awaiting)
	}
	if awaiting == wasAwaiting && !wasWaiting && !waiting && !r.newStep(p) {
		return
	}
	state, progress := job.Queued, &job.Progress{NextAction: nextAction(p)}
	if progress.NextAction != nil {
		state = job.AwaitingAction
	}
	if waiting {
		progress.Waiting = &job.Blocked{Reason: p.WaitingFor.Text(), RetryAt: r.now()}
		if pause != nil {
			progress.Waiting.RetryAt = r.now().Add(*pause)
		}
	}
	if progress.NextAction == nil && progress.Waiting == nil {
		progress = nil
	}
	show := func() { job.QueueProgress(b, p.PurchaseID, state, progress) }
	if p.CancelJob == nil || !waiting && !wasWaiting {
		show()
		return
	}
	var same *job.Progress // the cancellation waits for the payment, and says what for
	if waiting {
		same = &job.Progress{Waiting: progress.Waiting}
	}
	if uuidv7.Compare(p.PurchaseID, *p.CancelJob) < 0 { // jobs are locked in the order of their ids
		show()
		job.QueueProgress(b, *p.CancelJob, job.Queued, same)
	} else {
		job.QueueProgress(b, *p.CancelJob, job.Queued, same)
		show()
	}
}

// nextAction is what the buyer has to do; nil: nothing.
func nextAction(p payment.Payment) *job.NextAction {
	switch {
	case p.Phase == payment.Action && p.NextAction != nil:
		return &job.NextAction{Type: job.ActionRedirect, URL: *p.NextAction, ExpiresAt: p.OverAt()}
	case p.Phase == payment.CardDeclined && p.Decline != nil:
		return &job.NextAction{Type: job.ActionPaymentMethod, Decline: p.Decline, ExpiresAt: p.OverAt()}
	}
	return nil
}

// newStep reports whether the buyer has something else to do than the job shows.
func (r *run) newStep(p payment.Payment) bool {
	return p.Phase.AwaitsBuyer() && (p.Phase != r.p.Phase || postgres.ValueOf(p.NextAction) != postgres.ValueOf(r.p.NextAction))
}
