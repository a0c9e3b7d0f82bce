package webhook

import (
	"context"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
)

// keyLives refuses a key that is revoked: a process may still know it. The key is not revoked
// before tx ends, so that its revocation finds what tx has made. An empty one is no key.
func keyLives(ctx context.Context, tx pgx.Tx, prefix string) error {
	if prefix == "" {
		return nil
	}
	var revoked bool // the condition is not in WHERE: rows that it leaves out are not locked
	err := tx.QueryRow(ctx, `SELECT count(*) FILTER (WHERE revoked) > 0 FROM (SELECT revoked_at IS NOT NULL AS revoked FROM api_keys WHERE prefix = $1 FOR SHARE) k`, prefix).Scan(&revoked)
	if err == nil && revoked {
		err = fault.New(fault.Unauthenticated, "the API key is not known or was revoked")
	}
	return fault.At(err, "webhook.keyLives")
}

// KeyRevoked ends what a revoked key has made: its endpoints are disabled, or with a successor
// given to that key. It returns how many there were. Call it in the transaction that revokes the
// key, after that.
func KeyRevoked(ctx context.Context, tx pgx.Tx, prefix, successor string) (endpoints int, err error) {
	tag, err := tx.Exec(ctx, `
		UPDATE webhook_endpoints p
		SET made_by = coalesce(nullif($2, ''), made_by),
		    disabled_at = CASE WHEN $2 = '' THEN coalesce(disabled_at, clock_timestamp()) ELSE disabled_at END,
		    disabled_reason = CASE WHEN $2 = '' THEN coalesce(disabled_reason, 'revoked') ELSE disabled_reason END,
		    version = version + CASE WHEN $2 = '' THEN 1 ELSE 0 END
		WHERE made_by = $1 AND `+lives, prefix, successor)
	return int(tag.RowsAffected()), fault.At(err, "webhook.KeyRevoked(%s)", prefix)
}
