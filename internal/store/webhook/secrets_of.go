package webhook

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// SecretsOf returns the valid secrets of endpoints, the newest first.
func SecretsOf(ctx context.Context, db postgres.DB, endpoints []uuid.UUID) (map[uuid.UUID][]Secret, error) {
	list, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Secret], `
		SELECT id, endpoint_id, sealed, created_at, expires_at FROM webhook_secrets
		WHERE endpoint_id = ANY($1) AND (expires_at IS NULL OR expires_at > clock_timestamp())
		ORDER BY created_at DESC, id DESC LIMIT $2`, endpoints, MostSecrets*len(endpoints))
	if err != nil {
		return nil, fmt.Errorf("webhook.SecretsOf: %w", err)
	}
	of := make(map[uuid.UUID][]Secret, len(endpoints))
	for _, s := range list {
		of[s.EndpointID] = append(of[s.EndpointID], s)
	}
	return of, nil
}
