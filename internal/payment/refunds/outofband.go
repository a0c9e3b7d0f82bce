package refunds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// OutOfBand is a refund that others have made, as the provider reports it.
type OutOfBand struct {
	ProviderID string // re_… of the provider
	PurchaseID uuid.UUID
	Amount     money.Amount
	Currency   string              // ISO 4217, capitals
	State      payment.RefundState // as the provider reports it
}

// Made says of the refund that it was made, for the timeline; how says by whom.
func (t OutOfBand) Made(how string) string {
	return fmt.Sprintf("%s of %s was made at the provider, %s", t.ProviderID, money.Currency(t.Currency).Format(t.Amount), how)
}

// Broken says of the refund that it has failed, for the timeline.
func (t OutOfBand) Broken() string {
	return fmt.Sprintf("%s of %s is %s at the provider: that money was not refunded", t.ProviderID, money.Currency(t.Currency).Format(t.Amount), t.State)
}

// Recorded is a refund that was recorded: it was not known, or has another state now.
type Recorded struct {
	OutOfBand
	Fresh bool // it was not known
}

// RecordOutOfBand records refunds that others have made at the provider, and what was reported of
// them last, under the locks of their payments. Reports come in any order: one that has failed or was
// canceled stays so, and one that has succeeded can only fail. It returns those that it has
// written, in the order of the provider's ids. No id may be given twice.
//
// When one has failed, and ours do not ask for all that is to be refunded any more, the rest is
// owed again: it makes a refund of ours over it, which waits for an operator as any that has
// failed. The purchase is to follow, in the same transaction.
func RecordOutOfBand(ctx context.Context, tx pgx.Tx, all []OutOfBand) ([]Recorded, error) {
	reported := make(map[string]OutOfBand, len(all))
	n := len(all)
	ids, providerIDs, purchases := make([]uuid.UUID, n), make([]string, n), make([]uuid.UUID, n)
	amounts, currencies, states := make([]int64, n), make([]string, n), make([]string, n)
	for i, t := range all {
		reported[t.ProviderID] = t
		ids[i], providerIDs[i], purchases[i] = uuidv7.New(), t.ProviderID, t.PurchaseID
		amounts[i], currencies[i], states[i] = int64(t.Amount), t.Currency, string(t.State)
	}
	// What we have asked for and was resolved by hand is not ours any more when it is made after all.
	if _, err := tx.Exec(ctx, `UPDATE refunds SET provider_id = NULL WHERE provider_id = ANY($1) AND state = 'resolved'`, providerIDs); err != nil {
		return nil, fmt.Errorf("refunds.RecordOutOfBand: %w", err)
	}
	rows, err := tx.Query(ctx, `
		INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, state, provider_id, finished_at)
		SELECT t.id, t.purchase_id, p.campaign_id, p.user_id, 'card', t.amount, t.currency, 'out-of-band', t.state, t.provider_id,
		       CASE WHEN t.state = 'succeeded' THEN clock_timestamp() END
		FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[], $5::text[], $6::text[]) AS t (id, provider_id, purchase_id, amount, currency, state)
		JOIN purchases p ON p.id = t.purchase_id
		ON CONFLICT (provider_id) DO UPDATE
		SET state = excluded.state, version = refunds.version + 1, finished_at = excluded.finished_at
		WHERE refunds.number IS NULL AND refunds.state <> excluded.state AND refunds.state NOT IN ('failed', 'canceled')
		  AND (refunds.state <> 'succeeded' OR excluded.state IN ('failed', 'canceled'))
		RETURNING provider_id, xmax = 0`, ids, providerIDs, purchases, amounts, currencies, states) // a row that was inserted just now has no xmax
	if err != nil {
		return nil, fmt.Errorf("refunds.RecordOutOfBand: %w", err)
	}
	recorded, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Recorded, err error) {
		var id string
		err = row.Scan(&id, &n.Fresh)
		n.OutOfBand = reported[id]
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("refunds.RecordOutOfBand: %w", err)
	}
	slices.SortFunc(recorded, func(a, b Recorded) int { return cmp.Compare(a.ProviderID, b.ProviderID) })
	return recorded, owe(ctx, tx, recorded)
}

// owe makes refunds of the money that refunds of others were to refund and have not. A
// purchase that is kept owes nothing, and what ours are about is owed already.
func owe(ctx context.Context, tx pgx.Tx, recorded []Recorded) error {
	var ids, purchases []uuid.UUID
	var failures []string
	for _, n := range recorded {
		if n.State.Refused() && !slices.Contains(purchases, n.PurchaseID) {
			ids, purchases, failures = append(ids, uuidv7.New()), append(purchases, n.PurchaseID), append(failures, n.Broken())
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, failure)
		SELECT n.id, n.purchase_id, ours.number + 1, ours.campaign_id, ours.user_id, 'card', owed.amount, ours.currency, ours.reason, 'failed', n.failure
		FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS n (id, purchase_id, failure)
		CROSS JOIN LATERAL (SELECT * FROM refunds WHERE purchase_id = n.purchase_id AND number IS NOT NULL ORDER BY number DESC LIMIT 1) ours
		CROSS JOIN LATERAL (
			SELECT (SELECT `+debt+` FROM (SELECT n.purchase_id) r (purchase_id)) - sum(amount)::bigint AS amount FROM refunds
			WHERE purchase_id = n.purchase_id AND (number IS NOT NULL OR state NOT IN ('failed', 'canceled'))) owed
		WHERE owed.amount > 0`, ids, purchases, failures)
	if err != nil {
		return fmt.Errorf("refunds.RecordOutOfBand: %w", err)
	}
	return nil
}

// recordOthers records those refunds of the intent that are not ours, in the table and in the timeline.
// One that was made under the id of ours is not ours, either, when ours was resolved by hand, or is
// another one: mine. The list is not older than the refund as it was claimed, or nothing is recorded.
func (o *run) recordOthers(ctx context.Context, all []payprovider.Refund, rows []payment.Refund, mine payprovider.Refund) error {
	there, twice := o.notOurs(all, rows, mine.ID)
	if len(there) == 0 {
		return nil
	}
	var recorded []Recorded
	err := postgres.InTx(ctx, o.db, func(tx pgx.Tx) error {
		if _, err := payment.Lock(ctx, tx, o.PurchaseID); err != nil {
			return err
		}
		now, err := payment.GetRefund(ctx, tx, access.Everything(), o.ID)
		if err != nil || now.Version != o.Version {
			return errors.Join(err, lease.ErrFenced)
		}
		if recorded, err = RecordOutOfBand(ctx, tx, there); err != nil {
			return err
		}
		var b pgx.Batch
		for _, n := range recorded {
			o.queueRecorded(&b, n, twice[n.ProviderID])
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return fmt.Errorf("refunds.recordOthers(%s): %w", o.ID, err)
	}
	for _, n := range recorded {
		if o.State == payment.RefundResolved && postgres.ValueOf(o.ProviderID) == n.ProviderID { // see RecordOutOfBand
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
// a row. An attempt that has failed belongs to none.
func (o *run) notOurs(all []payprovider.Refund, rows []payment.Refund, mine string) (there []OutOfBand, twice map[string]bool) {
	ours, recorded := make(map[string]payment.Refund), make(map[string]bool)
	for _, r := range rows {
		ours[r.ID.String()] = r
		recorded[postgres.ValueOf(r.ProviderID)] = r.Reason == payment.RefundOutOfBand
	}
	twice = make(map[string]bool)
	for _, one := range all {
		state := payment.RefundStateOf(one.Status)
		r, known := ours[one.Metadata[payprovider.RefundKey]]
		switch known = known && !recorded[one.ID]; {
		case state == "" || one.Amount <= 0 || known && state.Refused():
			continue
		case known && r.State != payment.RefundResolved:
			if r.ID == o.ID && one.ID == mine || postgres.ValueOf(r.ProviderID) == one.ID || r.ID != o.ID && r.ProviderID == nil {
				continue
			}
			twice[one.ID] = true
		}
		there = append(there, OutOfBand{ProviderID: one.ID, PurchaseID: o.PurchaseID, Amount: one.Amount, Currency: one.Currency, State: state})
	}
	return there, twice
}

func (o *run) queueRecorded(b *pgx.Batch, n Recorded, twice bool) {
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
