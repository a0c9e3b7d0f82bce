package httpapi

import (
	"context"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract/operations"
)

func (s *server) GetStatus(context.Context, operations.GetStatusRequestObject) (operations.Answer, error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}
