package resource

import (
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/inventory"
)

// Hold is a hold, for those who may see its user.
func Hold(h inventory.Hold, who Role) contract.Hold {
	d := contract.Hold{ID: h.ID, CampaignID: h.CampaignID, UserID: h.UserID, State: contract.HoldState(h.State), ExpiresAt: h.ExpiresAt,
		Extensions: h.Extensions, Currency: h.Currency, PurchaseID: h.PurchaseID, CreatedAt: h.CreatedAt, EndedAt: h.EndedAt, Metadata: metadataFor(h.Metadata, who),
		Positions: make([]contract.PricedPosition, len(h.Positions))}
	for i, p := range h.Positions {
		d.Positions[i] = positionJSON(p.Place, p.Price)
		d.Amount += int64(p.Price)
	}
	return d
}
