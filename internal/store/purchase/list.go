package purchase

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/platform/postgres"
)

// Filter selects purchases of a list. Empty fields but Who select all. There must be a campaign,
// a user, a reference or an id: each of them has an index.
type Filter struct {
	Who        access.Grant
	CampaignID uuid.UUID
	UserID     string
	Reference  string // of an external payment
	ID         uuid.UUID
	State      State
	Method     PaymentMethod
}

// List returns purchases newest first, and the id before which the next page begins: zero
// after the last one. It goes along the index of the reference, of the user, or of the
// campaign and the client; in a campaign an index finds those that are not completed. The other fields
// are looked up among [postgres.ListWindow] purchases at most: then a page may be short,
// or empty, and not be the last.
func List(ctx context.Context, db postgres.DB, f Filter, p postgres.ListPage) (list []Purchase, next uuid.UUID, err error) {
	l := postgres.List[Purchase]{From: "purchases", Alias: "p", Columns: columns, Scan: scan, ID: func(p Purchase) uuid.UUID { return p.ID }}
	switch {
	case f.ID != uuid.Nil:
		l.Only(`p.id = ?`, f.ID)
	case f.Reference != "":
		l.Along("payment_reference", f.Reference)
		f.Reference = ""
	case f.UserID != "":
		l.Along("user_id", f.UserID)
		f.UserID = ""
	case f.CampaignID != uuid.Nil:
		l.Along("campaign_id", f.CampaignID)
		f.CampaignID = uuid.Nil
		switch {
		case f.State != "" && f.State != Completed:
			l.Along("state", string(f.State))
			l.Only(`p.state <> 'completed'`) // as the index purchases_not_completed says it
			f.State = ""
		case f.Who.Client() != nil: // others may have bought most of the campaign
			l.Along("client", *f.Who.Client())
		}
	}
	l.OnlyOf(f.Who, "p.client", "p.user_id")
	for _, c := range [][2]string{{`p.user_id = ?`, f.UserID}, {`p.state = ?`, string(f.State)}, {`p.payment_method = ?`, string(f.Method)}} {
		if condition, value := c[0], c[1]; value != "" {
			l.Also(condition, value)
		}
	}
	if f.CampaignID != uuid.Nil {
		l.Also(`p.campaign_id = ?`, f.CampaignID)
	}
	if list, next, err = l.Page(ctx, db, p); err != nil {
		return nil, uuid.Nil, fmt.Errorf("purchase.List: %w", err)
	}
	return list, next, nil
}
