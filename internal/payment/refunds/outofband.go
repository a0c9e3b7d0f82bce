package refunds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
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
	ID         uuid.UUID           `json:"id"`          // of our row, if there is none yet; set by RecordOutOfBand
	ProviderID string              `json:"provider_id"` // re_… of the provider
	PurchaseID uuid.UUID           `json:"purchase_id"`
	Amount     money.Amount        `json:"amount"`
	Currency   string              `json:"currency"` // ISO 4217, capitals
	State      payment.RefundState `json:"state"`    // as the provider reports it
	Made       bool                `json:"-"`        // it was reported that it refunds money
	How        string              `json:"-"`        // it was made, for the timeline
}

// OutOfBandChange is a refund that was recorded: it was not known, or has another state now.
type OutOfBandChange struct {
	OutOfBand
	Fresh bool // it was not known, and refunds money
	Fails bool // it refunds no money any more
}

// RecordOutOfBand records refunds that others have made at the provider, and what was reported of
// them last, in the table and in the timeline, under the locks of their payments. Reports come in any order:
// one that has failed or was canceled stays so, and one that has succeeded can only fail. It returns those
// that it has written, in the order of the provider's ids. No id may be given twice.
//
// When one has failed, and ours do not ask for all that is to be refunded any more, the rest is
// owed again: it makes a refund of ours over it, which waits for an operator as any that has
// failed. A purchase that is kept owes nothing, and what ours are about is owed already.
func RecordOutOfBand(ctx context.Context, tx pgx.Tx, all []OutOfBand) ([]OutOfBandChange, error) {
	reported, providerIDs := make(map[string]OutOfBand, len(all)), make([]string, len(all))
	for i := range all {
		all[i].ID, providerIDs[i] = uuidv7.New(), all[i].ProviderID
		reported[all[i].ProviderID] = all[i]
	}
	// What we have asked for and was resolved by hand is not ours any more when it is made after all.
	if _, err := tx.Exec(ctx, `UPDATE refunds SET provider_id = NULL WHERE provider_id = ANY($1) AND state = 'resolved'`, providerIDs); err != nil {
		return nil, fault.At(err, "refunds.RecordOutOfBand")
	}
	recorded, err := postgres.Collect(ctx, tx, func(row pgx.CollectableRow) (n OutOfBandChange, err error) {
		err = row.Scan(&n.ProviderID, &n.Fresh)
		n.OutOfBand = reported[n.ProviderID]
		n.Fails = n.State.Refused() && (!n.Fresh || n.Made)
		n.Fresh = n.Fresh && n.Made
		return n, err
	}, `
		INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, state, provider_id, finished_at)
		SELECT t.id, t.purchase_id, p.campaign_id, p.user_id, 'card', t.amount, t.currency, 'out-of-band', t.state, t.provider_id,
		       CASE WHEN t.state = 'succeeded' THEN clock_timestamp() END
		FROM json_populate_recordset(NULL::refunds, $1::json) t JOIN purchases p ON p.id = t.purchase_id
		ON CONFLICT (provider_id) DO UPDATE
		SET state = excluded.state, version = refunds.version + 1, finished_at = coalesce(refunds.finished_at, excluded.finished_at)
		WHERE refunds.number IS NULL AND refunds.state <> excluded.state AND refunds.state NOT IN ('failed', 'canceled')
		  AND (refunds.state <> 'succeeded' OR excluded.state IN ('failed', 'canceled'))
		RETURNING provider_id, xmax = 0`, all) // a row that was inserted just now has no xmax
	if err != nil {
		return nil, fault.At(err, "refunds.RecordOutOfBand")
	}
	slices.SortFunc(recorded, func(a, b OutOfBandChange) int { return cmp.Compare(a.ProviderID, b.ProviderID) })
	var b pgx.Batch
	var ids, owing []uuid.UUID
	var failures []string
	for _, n := range recorded {
		money := money.Currency(n.Currency).Format(n.Amount)
		if n.Fresh {
			detail := fmt.Sprintf("%s of %s was made at the provider, %s", n.ProviderID, money, n.How)
			payment.QueueSteps(&b, payment.Step{PurchaseID: n.PurchaseID, Event: payment.StepOutOfBand, Detail: &detail})
		}
		failure := fmt.Sprintf("%s of %s is %s at the provider: that money was not refunded", n.ProviderID, money, n.State)
		if n.Fails {
			payment.QueueSteps(&b, payment.Step{PurchaseID: n.PurchaseID, Event: payment.StepOutOfBandFailed, Detail: &failure})
		}
		if n.State.Refused() && !slices.Contains(owing, n.PurchaseID) {
			ids, owing, failures = append(ids, uuidv7.New()), append(owing, n.PurchaseID), append(failures, failure)
		}
	}
	if len(owing) > 0 {
		b.Queue(`
			INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, failure)
			SELECT n.id, n.purchase_id, ours.number + 1, ours.campaign_id, ours.user_id, 'card', owed.amount, ours.currency, ours.reason, 'failed', n.failure
			FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS n (id, purchase_id, failure)
			CROSS JOIN LATERAL (SELECT * FROM refunds WHERE purchase_id = n.purchase_id AND number IS NOT NULL ORDER BY number DESC LIMIT 1) ours
			CROSS JOIN LATERAL (
				SELECT (SELECT `+payment.DebtSQL+` FROM (SELECT n.purchase_id) r (purchase_id)) - sum(amount)::bigint AS amount FROM refunds
				WHERE purchase_id = n.purchase_id AND (number IS NOT NULL OR state NOT IN ('failed', 'canceled'))) owed
			WHERE owed.amount > 0`, ids, owing, failures)
		purchase.QueueFollow(&b, owing...)
	}
	return recorded, fault.At(postgres.Send(ctx, tx, &b), "refunds.RecordOutOfBand")
}

// RecordListed is [RecordOutOfBand] for what the provider lists of a purchase, unless there are refunds of ours: their
// workers say which are theirs.
func RecordListed(ctx context.Context, tx pgx.Tx, purchaseID uuid.UUID, all []payprovider.Refund) ([]OutOfBandChange, error) {
	rows, err := payment.RefundsOfPurchases(ctx, tx, []uuid.UUID{purchaseID})
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(rows[purchaseID], func(r payment.Refund) bool { return r.Reason != payment.RefundOutOfBand }) {
		isRecorded := func(one payprovider.Refund) bool {
			return slices.ContainsFunc(rows[purchaseID], func(r payment.Refund) bool {
				return postgres.ValueOf(r.ProviderID) == one.ID && r.State == payment.RefundStateOf(one.Status)
			})
		}
		if slices.ContainsFunc(all, func(one payprovider.Refund) bool { return !isRecorded(one) }) { // ours may have been made since the event
			_, err = payment.WakeRefunds(ctx, tx, []uuid.UUID{purchaseID}, nil)
		}
		return nil, err
	}
	there := make([]OutOfBand, 0, len(all))
	for _, one := range all {
		if state := payment.RefundStateOf(one.Status); state != "" && one.Amount > 0 {
			there = append(there, OutOfBand{ProviderID: one.ID, PurchaseID: purchaseID, Amount: one.Amount, Currency: one.Currency, State: state, Made: !state.Refused(),
				How: "and not by us"})
		}
	}
	return RecordOutOfBand(ctx, tx, there)
}

// besideOurs is how a second refund was made that has the id of one of ours.
const besideOurs = "under the id of ours, beside ours"

// recordOthers records those refunds of the intent that are not ours.
// One that was made under the id of ours is not ours, either, when ours was resolved by hand, or is
// another one: mine. The list is not older than the refund as it was claimed, or nothing is recorded. rows are older
// than the list. What our rows of this moment explain is left to their workers.
func (o *run) recordOthers(ctx context.Context, all []payprovider.Refund, rows []payment.Refund, mine payprovider.Refund) error {
	there := o.notOurs(all, rows, mine.ID)
	if len(there) == 0 {
		return nil
	}
	var recorded []OutOfBandChange
	err := postgres.InTx(ctx, o.db, func(tx pgx.Tx) error {
		if _, err := payment.Lock(ctx, tx, o.PurchaseID); err != nil {
			return err
		}
		now, err := payment.RefundsOfPurchases(ctx, tx, []uuid.UUID{o.PurchaseID})
		if err != nil || !slices.ContainsFunc(now[o.PurchaseID], func(r payment.Refund) bool { return r.ID == o.ID && r.Version == o.Version }) {
			return errors.Join(err, lease.ErrFenced)
		}
		unknown := o.notOurs(all, now[o.PurchaseID], mine.ID)
		there = slices.DeleteFunc(there, func(one OutOfBand) bool {
			return !slices.ContainsFunc(unknown, func(n OutOfBand) bool { return n.ProviderID == one.ProviderID })
		})
		recorded, err = RecordOutOfBand(ctx, tx, there)
		return err
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
		if n.How == besideOurs && n.Fresh {
			o.metrics.twice.Inc()
			o.logger.Error("money was given back twice: by two refunds under one id of ours", "refund", o.ID, "purchase", o.PurchaseID,
				"second", n.ProviderID, "too_much", int64(n.Amount), "currency", n.Currency)
		}
	}
	return nil
}

// notOurs returns the refunds of the intent that are not of our rows: the provider's id decides, and
// where we do not have one yet, ours in the metadata. An attempt that has failed belongs to none.
func (o *run) notOurs(all []payprovider.Refund, rows []payment.Refund, mine string) (there []OutOfBand) {
	ours, recorded := make(map[string]payment.Refund), make(map[string]bool)
	for _, r := range rows {
		ours[r.ID.String()] = r
		recorded[postgres.ValueOf(r.ProviderID)] = r.Reason == payment.RefundOutOfBand
	}
	for _, one := range all {
		state, how := payment.RefundStateOf(one.Status), "and not by us"
		if o.State == payment.RefundResolved {
			how = "although ours was resolved by hand"
		}
		r, known := ours[one.Metadata[payprovider.RefundKey]]
		switch known = known && !recorded[one.ID]; {
		case state == "" || one.Amount <= 0 || known && state.Refused():
			continue
		case known && r.State != payment.RefundResolved:
			if r.ID == o.ID && one.ID == mine || postgres.ValueOf(r.ProviderID) == one.ID || r.ID != o.ID && r.ProviderID == nil {
				continue
			}
			how = besideOurs
		}
		there = append(there, OutOfBand{ProviderID: one.ID, PurchaseID: o.PurchaseID, Amount: one.Amount, Currency: one.Currency, State: state, Made: !state.Refused(), How: how})
	}
	return there
}
