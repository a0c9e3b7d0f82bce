package httpapi

import (
	"context"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract/operations"
)

func (s *server) ListFailures(context.Context, operations.ListFailuresRequestObject) (operations.Answer, error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}
