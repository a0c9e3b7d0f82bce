package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
)

// HoldFilter selects holds of a list. What is empty selects all. There must be a campaign
// or a user: each of them has an index.
type HoldFilter struct {
	CampaignID uuid.UUID
	UserID     string
	State      HoldState
}

// ListHolds returns holds newest first, as they are now, and the id before which the next
// page begins: zero after the last one. With a state a page may be short, or empty, and not
// be the last: it looks at [postgres.ListWindow] holds at most. Active holds of a campaign
// are found by an index.
func ListHolds(ctx context.Context, db postgres.DB, f HoldFilter, p postgres.ListPage) (list []Hold, next uuid.UUID, err error) {
	l := postgres.List[Hold]{From: "holds", Alias: "h", Columns: now, Scan: scanHold, ID: func(h Hold) uuid.UUID { return h.ID }}
	if f.CampaignID != uuid.Nil {
		l.Only(`h.campaign_id = ?`, f.CampaignID)
	}
	if f.UserID != "" {
		l.Only(`h.user_id = ?`, f.UserID)
	}
	active := l.Also
	if f.CampaignID != uuid.Nil {
		active = l.Only // there are few at a time
	}
	switch f.State {
	case "":
	case HoldActive:
		active(`h.state = 'active' AND h.expires_at > (SELECT clock_timestamp())`)
	case HoldExpired:
		l.Also(`(h.state = 'expired' OR h.state = 'active' AND h.expires_at <= (SELECT clock_timestamp()))`)
	default:
		l.Also(`h.state = ?`, string(f.State))
	}
	if list, next, err = l.Page(ctx, db, p); err != nil {
		return nil, uuid.Nil, fmt.Errorf("inventory.ListHolds: %w", err)
	}
	return list, next, nil
}
