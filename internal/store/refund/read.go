package refund

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
)

// columns are the fields of a Refund, in order.
const columns = `r.id, r.purchase_id, r.campaign_id, r.user_id, r.method, r.amount, r.currency, r.reason, r.state, r.version, r.lease_until,
	r.due_at, r.wakes, r.attempt, r.attempt_at, coalesce(r.asked, r.amount), coalesce(extract(epoch FROM clock_timestamp() - r.attempt_at) * interval '1 second', interval '0'),
	r.provider_id, r.failure, r.faults, r.stuck, r.resolved_by, r.resolve_reason, r.created_at,
	extract(epoch FROM clock_timestamp() - r.created_at) * interval '1 second', r.finished_at`

var scan = pgx.RowToStructByPos[Refund]

// Get returns a refund, or a not-found Error.
func Get(ctx context.Context, db postgres.DB, who access.Grant, id uuid.UUID) (Refund, error) {
	r, err := postgres.CollectOne(ctx, db, scan, `
		SELECT `+columns+` FROM refunds r WHERE id = $1 AND ($2::text IS NULL OR client = $2) AND ($3::text IS NULL OR user_id = $3)`, id, who.Client(), who.User())
	if errors.Is(err, pgx.ErrNoRows) {
		return Refund{}, fault.New(fault.NotFound, "there is no refund %s", id)
	}
	return r, fault.At(err, "refund.Get(%s)", id)
}

// GetAll returns refunds; those that are not there are left out.
func GetAll(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Refund, error) {
	list, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM unnest($1::uuid[]) AS i (id) CROSS JOIN LATERAL (SELECT * FROM refunds WHERE id = i.id) r`, ids)
	return list, fault.At(err, "refund.GetAll")
}

// OfCampaign returns refunds of a campaign in the order of their ids, after the given
// one (zero: from the start): those in a state, or with an empty one all.
func OfCampaign(ctx context.Context, db postgres.DB, who access.Grant, campaignID uuid.UUID, state State, after uuid.UUID, limit int) ([]Refund, error) {
	args := []any{campaignID, string(state), postgres.Nullable(after), limit}
	only := ""
	if client := who.Client(); client != nil { // of its own, so that the index of the client is used
		only, args = ` AND client = $5`, append(args, *client)
	}
	list, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM refunds r
		WHERE campaign_id = $1 AND ($2 = '' OR state = $2) AND ($3::uuid IS NULL OR id > $3)`+only+`
		ORDER BY id LIMIT $4`, args...)
	return list, fault.At(err, "refund.OfCampaign(%s)", campaignID)
}

// WaitingForOperator returns the card refunds that wait for an operator, those of all
// campaigns, in the order of their ids, after the given one (zero: from the start).
func WaitingForOperator(ctx context.Context, db postgres.DB, after uuid.UUID, limit int) ([]Refund, error) {
	list, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM refunds r WHERE `+forOperator+` AND ($1::uuid IS NULL OR id > $1) ORDER BY id LIMIT $2`, postgres.Nullable(after), limit)
	return list, fault.At(err, "refund.WaitingForOperator")
}

// OfPurchases returns the refunds of purchases, by purchase, in the order of their ids. It
// leaves out those that have none.
func OfPurchases(ctx context.Context, db postgres.DB, purchases []uuid.UUID) (map[uuid.UUID][]Refund, error) {
	list, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM unnest($1::uuid[]) AS p (id)
		CROSS JOIN LATERAL (SELECT * FROM refunds WHERE purchase_id = p.id) r ORDER BY r.id`, purchases)
	if err != nil {
		return nil, fmt.Errorf("refund.OfPurchases: %w", err)
	}
	of := make(map[uuid.UUID][]Refund)
	for _, r := range list {
		of[r.PurchaseID] = append(of[r.PurchaseID], r)
	}
	return of, nil
}

// debt is how much of what a card purchase r.purchase_id has paid is to be given back: the price
// of what was cancelled in part, while it keeps the rest, otherwise all.
const debt = `coalesce((SELECT CASE WHEN p.state = 'completed' THEN p.amount - (SELECT sum(i.price) FROM purchase_items i WHERE i.purchase_id = p.id)::bigint ELSE y.received END
	FROM payments y JOIN purchases p ON p.id = y.purchase_id WHERE y.purchase_id = r.purchase_id), 0)`

// givenBack is what refunds of the purchase give back beside the refund r, ours and others', and
// givenBackThere what they do at the provider.
const (
	givenBack      = givenBackBy + `'pending', 'requires_action', 'succeeded', 'resolved')), 0)::bigint`
	givenBackThere = givenBackBy + `'pending', 'requires_action', 'succeeded')), 0)::bigint`
	givenBackBy    = `coalesce((SELECT sum(o.amount) FROM refunds o WHERE o.purchase_id = r.purchase_id AND o.id <> r.id AND o.state IN (`
)

// left is how much is left of the debt for a refund r.
const left = `(` + debt + ` - ` + givenBack + `)`

// beingMade is the condition that another refund of the purchase than r is just being made: r waits
// for it, as both would ask for the same money.
const beingMade = `EXISTS (SELECT FROM refunds o WHERE o.purchase_id = r.purchase_id AND o.id <> r.id AND o.state = 'open' AND o.attempt > 0)`

// Remaining is how much money remains for a card refund to give back. Less than nothing: more was
// given back than was to be.
type Remaining struct {
	Debt   money.Amount // of what is to be given back
	Charge money.Amount // of the charge, at the provider: it refuses more
	Waits  bool         // for another refund of the purchase, which is just being made
}

// Left returns how much money remains for a card refund to give back.
func Left(ctx context.Context, db postgres.DB, id uuid.UUID) (r Remaining, err error) {
	err = db.QueryRow(ctx, `
		SELECT `+left+`, coalesce((SELECT received FROM payments WHERE purchase_id = r.purchase_id), 0) - `+givenBackThere+`, `+beingMade+`
		FROM refunds r WHERE id = $1`, id).Scan(&r.Debt, &r.Charge, &r.Waits)
	return r, fault.At(err, "refund.Left(%s)", id)
}
