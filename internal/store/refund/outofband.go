package refund

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
)

// StateOf returns the state that a status of the provider means, empty for one that is not
// known.
func StateOf(status payprovider.RefundStatus) State {
	switch status {
	case payprovider.RefundPending:
		return Pending
	case payprovider.RefundRequiresAction:
		return RequiresAction
	case payprovider.RefundSucceeded:
		return Succeeded
	case payprovider.RefundFailed:
		return Failed
	case payprovider.RefundCanceled:
		return Canceled
	}
	return ""
}

// Told is what the provider tells of a refund that is not ours.
type Told struct {
	ProviderID string // re_… of the provider
	PurchaseID uuid.UUID
	Amount     money.Amount
	Currency   string // ISO 4217, capitals
	State      State  // as the provider tells
}

// Made says of the refund that it was made, for the timeline; how says by whom.
func (t Told) Made(how string) string {
	return fmt.Sprintf("%s of %s was made at the provider, %s", t.ProviderID, money.Currency(t.Currency).Format(t.Amount), how)
}

// Broken says of the refund that it has failed, for the timeline.
func (t Told) Broken() string {
	return fmt.Sprintf("%s of %s is %s at the provider: that money was not given back", t.ProviderID, money.Currency(t.Currency).Format(t.Amount), t.State)
}

// Noted is a refund that was noted: it was not known, or has another state now.
type Noted struct {
	Told
	Fresh bool // it was not known
}

// Note notes refunds that others have made at the provider, and what was told of them last,
// under the locks of their payments. News of them come in any order: one that has failed or was
// canceled stays so, and one that has succeeded can only fail. It returns those that it has
// written, in the order of the provider's ids. No id may be given twice.
//
// When one has failed, and ours do not ask for all that is to be given back any more, the rest is
// owed again: Note makes a refund of ours over it, which waits for an operator as any that has
// failed. The purchase is to follow, in the same transaction.
func Note(ctx context.Context, tx pgx.Tx, all []Told) ([]Noted, error) {
	told := make(map[string]Told, len(all))
	n := len(all)
	ids, providerIDs, purchases := make([]uuid.UUID, n), make([]string, n), make([]uuid.UUID, n)
	amounts, currencies, states := make([]int64, n), make([]string, n), make([]string, n)
	for i, t := range all {
		told[t.ProviderID] = t
		ids[i], providerIDs[i], purchases[i] = uuidv7.New(), t.ProviderID, t.PurchaseID
		amounts[i], currencies[i], states[i] = int64(t.Amount), t.Currency, string(t.State)
	}
	// What we have asked for and was resolved by hand is not ours any more when it is made after all.
	if _, err := tx.Exec(ctx, `UPDATE refunds SET provider_id = NULL WHERE provider_id = ANY($1) AND state = 'resolved'`, providerIDs); err != nil {
		return nil, fmt.Errorf("refund.Note: %w", err)
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
		return nil, fmt.Errorf("refund.Note: %w", err)
	}
	noted, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Noted, err error) {
		var id string
		err = row.Scan(&id, &n.Fresh)
		n.Told = told[id]
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("refund.Note: %w", err)
	}
	slices.SortFunc(noted, func(a, b Noted) int { return cmp.Compare(a.ProviderID, b.ProviderID) })
	return noted, owe(ctx, tx, noted)
}

// owe makes refunds of the money that refunds of others were to give back and have not. A
// purchase that is kept owes nothing, and what ours are about is owed already.
func owe(ctx context.Context, tx pgx.Tx, noted []Noted) error {
	var ids, purchases []uuid.UUID
	var failures []string
	for _, n := range noted {
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
		return fmt.Errorf("refund.Note: %w", err)
	}
	return nil
}
