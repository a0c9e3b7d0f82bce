package httpapi

import (
	"context"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract/operations"
)

func (s *server) ListKeys(context.Context, operations.ListKeysRequestObject) (operations.Answer, error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}

func (s *server) RevokeKey(context.Context, operations.RevokeKeyRequestObject) (operations.Answer, error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}
