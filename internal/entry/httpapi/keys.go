package httpapi

import (
	"context"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/key"
	"triprize/internal/webhook"
)

func keyJSON(k key.Key) contract.Key {
	return contract.Key{Prefix: k.Prefix, Role: contract.KeyRole(k.Role), Client: k.Client, CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt, RevokedAt: k.RevokedAt}
}

func (s *server) ListKeys(ctx context.Context, _ operations.ListKeysRequestObject) (operations.Answer, error) {
	all, err := key.List(ctx, s.db)
	return operations.ListKeys200(contract.KeyList{Keys: response.Documents(all, keyJSON)}, err)
}

// RevokeKey does what `triprize key revoke` does. The key is cached by every process for [key.CacheTTL].
func (s *server) RevokeKey(ctx context.Context, r operations.RevokeKeyRequestObject) (operations.Answer, error) {
	if call.Of(ctx).KeyPrefix == r.Prefix {
		return nil, fault.New(fault.StateConflict, "a key cannot revoke itself: use another operator's key, or triprize key revoke")
	}
	successor := ""
	if r.Body != nil {
		successor = response.ValueOf(r.Body.TransferEndpointsTo)
	}
	revoked, _, err := key.Revoke(ctx, s.db, r.Prefix, successor, webhook.KeyRevoked)
	return operations.RevokeKey200(keyJSON(revoked), err)
}
