package drawrecord

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Token is an RFC 3161 token over the hash of a campaign's freeze record.
type Token struct {
	Authority fairdraw.Hash // SHA-256 of the authority's root certificate
	Token     []byte        // DER
	GenTime   time.Time
}

// InsertTokens stores tokens, each authority's once. It does so before the draw only: the
// caller holds the execution lock, in this transaction.
func InsertTokens(ctx context.Context, tx pgx.Tx, id uuid.UUID, tokens []Token) error {
	var b pgx.Batch
	for _, t := range tokens {
		b.Queue(`INSERT INTO timestamp_tokens (campaign_id, authority, token, gen_time) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
			id, t.Authority[:], t.Token, t.GenTime)
	}
	return fault.At(tx.SendBatch(ctx, &b).Close(), "drawrecord.InsertTokens(%s)", id)
}

// TokensOf returns the tokens of a campaign, by authority.
func TokensOf(ctx context.Context, db postgres.DB, id uuid.UUID) ([]Token, error) {
	list, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (t Token, err error) {
		var authority []byte
		if err = row.Scan(&authority, &t.Token, &t.GenTime); err == nil {
			t.Authority = fairdraw.Hash(authority)
		}
		return t, err
	}, `SELECT authority, token, gen_time FROM timestamp_tokens WHERE campaign_id = $1 ORDER BY authority`, id)
	return list, fault.At(err, "drawrecord.TokensOf(%s)", id)
}
