package httpapi

import (
	"context"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract/operations"
)

func (s *server) ListAuditTrail(context.Context, operations.ListAuditTrailRequestObject) (operations.Answer, error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}
