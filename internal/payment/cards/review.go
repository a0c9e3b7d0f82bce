package cards

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/postgres"
)

// look asks the provider for the disputes of a payment that is finished, and for refunds that others have made: an
// event has reported one, and alone proves nothing. Where there are refunds of ours, their workers do the latter.
func (r *run) look(ctx context.Context) (Outcome, error) {
	if err := r.renew(ctx); err != nil {
		return "", err
	}
	r.hit("review.call")
	disputes, noDisputes := within(ctx, r.settings.CallTimeout, r.provider.DisputesOf, *r.p.IntentID)
	if err := r.renew(ctx); err != nil { // a call that hangs takes nothing from the other
		return "", err
	}
	there, noRefunds := within(ctx, r.settings.CallTimeout, r.provider.RefundsOf, *r.p.IntentID)
	r.hit("review.called")
	var others []refunds.OutOfBandChange
	var changed []payprovider.Dispute
	var released []job.Message
	err := postgres.InTx(ctx, r.db, func(tx pgx.Tx) error {
		p, err := payment.Lock(ctx, tx, r.p.PurchaseID)
		if err == nil && p.Version != r.p.Version {
			err = lease.ErrFenced
		}
		if err == nil && noRefunds == nil {
			others, err = refunds.RecordListed(ctx, tx, r.p.PurchaseID, there)
		}
		if err == nil && noDisputes == nil {
			changed, err = r.recordDisputes(ctx, tx, disputes)
		}
		if err == nil && (len(others) > 0 || len(changed) > 0) {
			released, err = r.judge(ctx, tx)
		}
		r.hit("review.store")
		return err
	})
	if err != nil {
		return "", err
	}
	r.messages = released
	r.hit("review.stored")
	r.logReview(others, changed)
	if err := cmp.Or(noRefunds, noDisputes); err != nil { // there is nothing to resolve: it is asked again
		failed, changed := payprovider.AsError(err, string(review)), r.p
		r.metrics.faults.WithLabelValues(string(review), string(failed.Kind)).Inc()
		changed.Faults++
		longest := longestRetry
		if failed.Kind == payprovider.KindForbidden || failed.Kind == payprovider.KindRefused || failed.Kind == payprovider.KindMismatch {
			longest = longestCheck
		}
		pause := backoff(changed.Faults, longest)
		r.logger.Warn("it is not known whether a payment is disputed, or was refunded by others", "purchase", r.p.PurchaseID, "again_in", pause, "error", err)
		return r.waits(r.store(ctx, changed, payment.Always, 0, pause))
	}
	return Nothing, r.sleep(ctx)
}

// within makes a call with a timeout.
func within[T any](ctx context.Context, timeout time.Duration, list func(context.Context, string) ([]T, error), of string) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return list(ctx, of)
}

// recordDisputes stores the disputes of the payment, which is locked, and what the timeline says of them. It returns
// those that have changed. One of which nobody says who has the money is a discrepancy for operators.
func (r *run) recordDisputes(ctx context.Context, tx pgx.Tx, all []payprovider.Dispute) (changed []payprovider.Dispute, err error) {
	var b pgx.Batch
	var steps []payment.Step
	var unclear []reconciliation.Discrepancy
	for _, d := range all {
		d.Status, d.Reason = clean(d.Status), clean(d.Reason)
		b.Queue(`
			INSERT INTO disputes AS d (id, purchase_id, status, reason, refundable, lost, amount, currency, fee, fee_currency, closed_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, CASE WHEN $3 IN ('warning_closed', 'won', 'lost', 'prevented') THEN clock_timestamp() END)
			ON CONFLICT (id) DO UPDATE SET status = excluded.status, reason = excluded.reason, refundable = excluded.refundable, lost = excluded.lost,
			    amount = excluded.amount, currency = excluded.currency, fee = excluded.fee, fee_currency = excluded.fee_currency, changed_at = excluded.changed_at,
			    closed_at = CASE WHEN d.status = excluded.status THEN d.closed_at ELSE excluded.closed_at END
			WHERE (d.purchase_id, d.status, d.reason, d.refundable, d.lost, d.amount, d.currency, d.fee, d.fee_currency) IS DISTINCT FROM
			      (d.purchase_id, excluded.status, excluded.reason, excluded.refundable, excluded.lost, excluded.amount, excluded.currency, excluded.fee, excluded.fee_currency)
			RETURNING closed, coalesce((SELECT o.status FROM disputes o WHERE o.id = d.id), ''), coalesce((SELECT o.closed FROM disputes o WHERE o.id = d.id), false)`,
			d.ID, r.p.PurchaseID, d.Status, d.Reason, d.Refundable, d.Lost, int64(d.Amount), d.Currency, int64(d.Fee), d.FeeCurrency).
			Query(func(rows pgx.Rows) error {
				var closed, wasClosed bool
				var was string // empty: it is new
				for rows.Next() {
					if err := rows.Scan(&closed, &was, &wasClosed); err != nil {
						return err
					}
					changed = append(changed, d)
					if was == "" || wasClosed && !closed {
						steps = append(steps, payment.Step{PurchaseID: r.p.PurchaseID, Event: payment.StepDisputed, Detail: postgres.Nullable(d.Reason)})
					}
					if closed && !(wasClosed && was == d.Status) {
						steps = append(steps, payment.Step{PurchaseID: r.p.PurchaseID, Event: payment.StepDisputeClosed, Detail: postgres.Nullable(d.Status)})
					}
				}
				return rows.Err()
			})
		if d.Unclear {
			amount := int64(d.Amount)
			unclear = append(unclear, reconciliation.Discrepancy{Kind: reconciliation.Differs, ObjectID: d.ID, PurchaseID: &r.p.PurchaseID, ThereAmount: &amount,
				ThereCurrency: &d.Currency, Detail: "the dispute is " + d.Status + " at the provider, and it is not known who has the money: refunds wait for an operator"})
		}
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil || len(changed) == 0 {
		return nil, err
	}
	var after pgx.Batch
	queueDisputed(&after, &r.p)
	payment.QueueSteps(&after, steps...)
	if err := tx.SendBatch(ctx, &after).Close(); err != nil {
		return nil, err
	}
	_, err = reconciliation.RecordReported(ctx, tx, unclear, false)
	return changed, err
}

// judge makes the job that cancels the purchase when its dispute is lost and its campaign wants that. There is one for a purchase. What
// the provider has given back beyond what was paid, or without reason, is a discrepancy for operators.
func (r *run) judge(ctx context.Context, tx pgx.Tx) ([]job.Message, error) {
	wrong, err := payment.TooMuchBack(ctx, tx, r.p.PurchaseID)
	if err == nil && wrong != "" {
		paid := int64(r.p.Received)
		_, err = reconciliation.RecordReported(ctx, tx, []reconciliation.Discrepancy{{Kind: reconciliation.Differs, ObjectID: *r.p.IntentID, PurchaseID: &r.p.PurchaseID,
			HereAmount: &paid, HereCurrency: &r.p.Currency, Detail: wrong}}, false)
	}
	if err != nil || r.settings.Release == nil {
		return nil, err
	}
	yes, err := payment.Releases(ctx, tx, r.p.PurchaseID)
	if err != nil || !yes {
		return nil, err
	}
	request, err := r.settings.Release(r.p.Ref())
	if err != nil {
		return nil, err
	}
	return job.Insert(ctx, tx, request)
}

// queueDisputed notes with a payment which of its disputes counts: one that forbids a refund before others, an open one
// before one that is closed, the one that has changed last. It adds up those that are lost, in the currency of the payment.
// It is no move of the payment, so its version stays.
func queueDisputed(b *pgx.Batch, p *payment.Payment) {
	b.Queue(`
		UPDATE payments p SET disputed_at = coalesce(p.disputed_at, clock_timestamp()), dispute = (
			SELECT json_build_object('id', d.id, 'status', d.status, 'reason', d.reason, 'refundable', d.refundable,
			    'amount', d.amount, 'currency', d.currency, 'fee', d.fee, 'fee_currency', d.fee_currency,
			    'opened_at', d.opened_at, 'closed_at', d.closed_at) FROM disputes d WHERE d.purchase_id = p.purchase_id
			ORDER BY d.refundable, d.closed, d.changed_at DESC, d.id LIMIT 1),
		    amount_disputed = (SELECT coalesce(sum(d.amount), 0) FROM disputes d WHERE d.purchase_id = p.purchase_id AND d.lost AND d.currency = p.currency)
		WHERE p.purchase_id = $1`, p.PurchaseID).Exec(postgres.Exactly(1, "disputed payments"))
}

// logReview counts and logs what was recorded, after its commit.
func (r *run) logReview(others []refunds.OutOfBandChange, disputes []payprovider.Dispute) {
	for _, f := range others {
		if f.Fresh {
			r.metrics.others.Inc()
			r.logger.Error("a payment was refunded at the provider, and not by us", "purchase", f.PurchaseID, "refund", f.ProviderID, "amount", int64(f.Amount),
				"currency", f.Currency)
		}
		if f.Fails {
			r.logger.Warn("a refund that is not ours has failed at the provider", "purchase", f.PurchaseID, "refund", f.ProviderID, "state", f.State)
		}
	}
	for _, d := range disputes {
		r.metrics.disputes.WithLabelValues(d.Status).Inc()
		r.logger.Warn("a charge is disputed", "purchase", r.p.PurchaseID, "intent", *r.p.IntentID, "dispute", d.ID, "status", d.Status, "reason", d.Reason,
			"lost", d.Lost, "unclear", d.Unclear)
	}
}
