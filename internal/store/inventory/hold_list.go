package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/platform/postgres"
)

// HoldFilter selects holds of a list. Empty fields but Who select all. There must be a campaign
// or a user: each of them has an index.
type HoldFilter struct {
	Who        access.Grant
	CampaignID uuid.UUID
	UserID     string
	State      HoldState
}

// ListHolds returns holds newest first, as they are now, and the id before which the next
// page begins: zero after the last one. It goes along the index of the user, of the active
// holds of the campaign, or of the campaign and the client. The other fields are looked up among
// [postgres.ListWindow] holds at most: then a page may be short, or empty, and not be the last.
func ListHolds(ctx context.Context, db postgres.DB, f HoldFilter, p postgres.ListPage) (list []Hold, next uuid.UUID, err error) {
	l := postgres.List[Hold]{From: "holds", Alias: "h", Columns: now, Scan: scanHold, ID: func(h Hold) uuid.UUID { return h.ID }}
	switch {
	case f.UserID != "":
		l.Along("user_id", f.UserID)
		if f.CampaignID != uuid.Nil {
			l.Also(`h.campaign_id = ?`, f.CampaignID)
		}
	case f.State == HoldActive: // there are few at a time; OFFSET 0 has the index of these used
		l.From = `(SELECT * FROM holds WHERE state = 'active' AND campaign_id = '` + f.CampaignID.String() + `' AND expires_at > (SELECT clock_timestamp()) OFFSET 0)`
		f.State = ""
	default:
		l.Along("campaign_id", f.CampaignID)
		if only := f.Who.Client(); only != nil { // others may have made most of them
			l.Along("client", *only)
		}
	}
	l.OnlyOf(f.Who, "h.client", "h.user_id")
	switch f.State {
	case "":
	case HoldActive:
		l.Also(`h.state = 'active' AND h.expires_at > (SELECT clock_timestamp())`)
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
