package purchase

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
)

// Filter selects purchases of a list. What is empty selects all. There must be a campaign,
// a user, a reference or an id: each of them has an index.
type Filter struct {
	CampaignID uuid.UUID
	UserID     string
	Reference  string // of an external payment
	ID         uuid.UUID
	State      State
	Method     PaymentMethod
}

// List returns purchases newest first, and the id before which the next page begins: zero
// after the last one. With a method, or a state, a page may be short, or empty, and not be
// the last: it looks at [postgres.ListWindow] purchases at most. In a campaign an index
// finds those that are not completed.
func List(ctx context.Context, db postgres.DB, f Filter, p postgres.ListPage) (list []Purchase, next uuid.UUID, err error) {
	l := postgres.List[Purchase]{From: "purchases", Alias: "p", Columns: columns, Scan: scan, ID: func(p Purchase) uuid.UUID { return p.ID }}
	if f.CampaignID != uuid.Nil {
		l.Only(`p.campaign_id = ?`, f.CampaignID)
	}
	if f.UserID != "" {
		l.Only(`p.user_id = ?`, f.UserID)
	}
	if f.Reference != "" {
		l.Only(`p.payment_reference = ?`, f.Reference)
	}
	if f.ID != uuid.Nil {
		l.Only(`p.id = ?`, f.ID)
	}
	switch {
	case f.State == "":
	case f.State != Completed && f.CampaignID != uuid.Nil:
		l.Only(`p.state = ? AND p.state <> 'completed'`, string(f.State)) // as the index purchases_not_completed says it
	default:
		l.Also(`p.state = ?`, string(f.State))
	}
	if f.Method != "" {
		l.Also(`p.payment_method = ?`, string(f.Method))
	}
	if list, next, err = l.Page(ctx, db, p); err != nil {
		return nil, uuid.Nil, fmt.Errorf("purchase.List: %w", err)
	}
	return list, next, nil
}
