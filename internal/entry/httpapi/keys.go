package httpapi

import (
	"context"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/key"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
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
	var revoked key.Key
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		if revoked, err = key.Revoke(ctx, tx, r.Prefix, successor); err != nil {
			return err
		}
		endpoints, err := webhook.KeyRevoked(ctx, tx, r.Prefix, successor)
		if err != nil {
			return err
		}
		return trail.Write(ctx, tx, nil, map[string]any{"revoked": true, "endpoints": endpoints, "successor": successor})
	})
	return operations.RevokeKey200(keyJSON(revoked), err)
}
