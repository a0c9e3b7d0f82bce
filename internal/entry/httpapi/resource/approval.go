package resource

import (
	"triprize/internal/approval"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// Approval is a request that another person must approve.
func Approval(r approval.Request) contract.Approval {
	d := contract.Approval{ID: r.ID, State: contract.ApprovalState(r.State), Operation: r.Operation, Target: r.Target, RequestedBy: ApprovalActor(r.RequestedBy),
		RequestedAt: r.RequestedAt, ExpiresAt: r.ExpiresAt, Preview: make([]contract.ApprovalFact, len(r.Preview)), DecidedAt: r.DecidedAt, Result: (*contract.ApprovalResult)(r.Result)}
	for i, f := range r.Preview {
		d.Preview[i] = contract.ApprovalFact(f)
	}
	if r.DecidedBy != nil {
		d.DecidedBy = new(ApprovalActor(*r.DecidedBy))
	}
	return d
}

// ApprovalActor is who asks or decides.
func ApprovalActor(a trail.Actor) contract.ApprovalActor {
	return contract.ApprovalActor{Operator: postgres.Nullable(a.Operator), Verified: a.Issuer != "", Issuer: postgres.Nullable(a.Issuer), Subject: postgres.Nullable(a.Subject),
		Email: postgres.Nullable(a.Email), Client: a.Client, KeyPrefix: postgres.Nullable(a.KeyPrefix), Reason: postgres.Nullable(a.Reason)}
}
