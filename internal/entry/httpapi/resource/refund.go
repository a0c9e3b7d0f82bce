package resource

import (
	"strings"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/refund"
)

// Refund shows users only the role of the one that resolved a refund, not the name of the
// client, and not what the provider has told us of a fault.
func Refund(r refund.Refund, who Role) contract.Refund {
	d := contract.Refund{ID: r.ID, PurchaseID: r.PurchaseID, CampaignID: r.CampaignID, UserID: r.UserID, Method: contract.RefundMethod(r.Method),
		Amount: int64(r.Amount), Currency: r.Currency, Reason: contract.RefundReason(r.Reason), State: contract.RefundState(r.State),
		Reference: r.ProviderID, Failure: r.Failure, CreatedAt: r.CreatedAt, FinishedAt: r.FinishedAt}
	if who == User {
		d.Failure = nil
	}
	if r.ForOperator() {
		waiter := string(Operator)
		d.WaitingFor = &waiter
	}
	if r.ResolvedBy != nil && r.ResolveReason != nil { // the table allows both or neither
		by := *r.ResolvedBy
		if who == User {
			by, _, _ = strings.Cut(by, ":")
		}
		d.Resolution = &contract.RefundResolution{By: by, Reason: *r.ResolveReason}
	}
	return d
}
