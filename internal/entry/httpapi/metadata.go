package httpapi

import (
	"strings"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/entry/httpapi/contract"
)

// checkMetadata returns an invalid-request Error that names each pair at fault. The contract
// has checked what it can say.
func checkMetadata(given contract.Metadata) error {
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

// mayWrite returns a forbidden Error when the caller may not give metadata: an app reads in
// them what it has written itself, and not what a buyer has.
func (who caller) mayWrite(given contract.Metadata) error {
	if len(given) > 0 && !who.role.SeesMetadata() {
		return fault.New(fault.Forbidden, "metadata is for apps and operators: a user's token cannot give any")
	}
	return checkMetadata(given)
}
