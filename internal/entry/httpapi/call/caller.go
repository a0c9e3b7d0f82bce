package call

import (
	"slices"
	"strings"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/resource"
)

// Caller is the sender of a request.
type Caller struct {
	Role   resource.Role
	Client string // the scope of its idempotency keys, and of the jobs that it sees
	User   string // the one user it may act for; empty: any

	KeyPrefix string // of its API key; empty: it has a token, or is anonymous
}

// MayActFor tells whether the caller may see and change what belongs to a user.
func (who Caller) MayActFor(userID string) bool {
	switch who.Role {
	case resource.Operator, resource.App:
		return true
	case resource.User:
		return who.User == userID
	default:
		return false
	}
}

// MayPayBy returns a forbidden Error when the caller may not use a payment method:
// only apps and operators may say that they have collected the money (external).
func (who Caller) MayPayBy(paymentMethod string) error {
	if paymentMethod == "external" && who.Role == resource.User {
		return fault.New(fault.Forbidden, "only an app may say that it has collected the money (payment.method external)")
	}
	return nil
}

// SeesOwners tells whether the caller may see the owners of all positions.
func (who Caller) SeesOwners() bool { return who.Role == resource.Operator }

// May returns a forbidden Error unless the caller has one of the roles.
func (who Caller) May(roles []string) error {
	if slices.Contains(roles, string(who.Role)) {
		return nil
	}
	return fault.New(fault.Forbidden, "the role %s may not do this", who.Role)
}

// Signature names the caller in the records of its actions: role:client, and /user
// when a user is signed in. It has at most 181 characters.
func (who Caller) Signature() string {
	signature := string(who.Role) + ":" + who.Client
	if who.User != "" {
		signature += "/" + who.User
	}
	return signature
}

// CheckMetadata returns an invalid-request Error that names each pair at fault. The contract
// has checked what it can say.
func CheckMetadata(given contract.Metadata) error {
	var faults []fault.Field
	for _, flaw := range metadata.Map(given).Check() {
		pointer := "/metadata"
		if !flaw.Whole {
			pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(flaw.Key)
		}
		faults = append(faults, fault.Field{Pointer: pointer, Detail: flaw.Detail})
	}
	if len(faults) > 0 {
		return fault.Invalid(faults...)
	}
	return nil
}

// MayWrite returns a forbidden Error when the caller may not give metadata: an app reads in
// them what it has written itself, and not what a buyer has.
func (who Caller) MayWrite(given contract.Metadata) error {
	if len(given) > 0 && !who.Role.SeesMetadata() {
		return fault.New(fault.Forbidden, "metadata is for apps and operators: a user's token cannot give any")
	}
	return CheckMetadata(given)
}
