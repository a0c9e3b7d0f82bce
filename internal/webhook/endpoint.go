package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

// columns are the fields of an Endpoint, in order.
const columns = `p.id, p.client, p.url, p.events, p.description, coalesce(p.made_by, ''), p.created_at,
	p.verified_at, p.challenge_error, p.disabled_at, p.disabled_reason,
	p.failing_since, p.failures, p.paused_until, p.slow, p.version, p.wakes`

var scan = pgx.RowToStructByPos[Endpoint]

// notDeleted is the condition of endpoints that exist.
const notDeleted = `p.deleted_at IS NULL`

// maxLeft is how many endpoints of a client may be deleted, and not swept yet.
const maxLeft = 100

// Create stores a new endpoint with its first secret: those fields of e that a client gives,
// and its id. It fails with a state-conflict Error when the client has limit of them already, or
// [maxLeft] more that are deleted and not swept yet: every event of a client looks at all rows
// of its endpoints. With VerifiedAt it need not echo a challenge. A key that is revoked makes
// nothing: that is an unauthenticated Error.
func Create(ctx context.Context, tx pgx.Tx, e Endpoint, sealed []byte, limit int) (Endpoint, error) {
	if err := checkKey(ctx, tx, e.MadeBy); err != nil {
		return Endpoint{}, err
	}
	// Two at once count each other.
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('webhook_endpoints ' || $1, 0))`, e.Client); err != nil {
		return Endpoint{}, fmt.Errorf("webhook.Create: %w", err)
	}
	made, err := postgres.CollectOne(ctx, tx, scan, `
		INSERT INTO webhook_endpoints AS p (id, client, url, events, description, made_by, verified_at)
		SELECT $1, $2, $3, $4, $5, nullif($8, ''), $9
		WHERE (SELECT count(*) FROM webhook_endpoints p WHERE client = $2 AND `+notDeleted+`) < $6
		  AND (SELECT count(*) FROM webhook_endpoints p WHERE client = $2) < $6 + $7
		RETURNING `+columns, e.ID, e.Client, e.URL, e.Events, e.Description, limit, maxLeft, e.MadeBy, e.VerifiedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return Endpoint{}, fault.New(fault.StateConflict, "the client %s has %d endpoints, which is the maximum; delete one first (a deleted endpoint counts for some minutes)", e.Client, limit)
	}
	if err == nil {
		err = addSecret(ctx, tx, e.ID, sealed, 0)
	}
	return made, fault.At(err, "webhook.Create")
}

// Get returns an endpoint, or a not-found Error.
func Get(ctx context.Context, db postgres.DB, id uuid.UUID) (Endpoint, error) {
	return one(ctx, db, "Get", id, `SELECT `+columns+` FROM webhook_endpoints p WHERE id = $1 AND `+notDeleted, id)
}

// List returns endpoints in the order of their ids, after the given one (zero: from the
// start): those of a client, or with an empty one all.
func List(ctx context.Context, db postgres.DB, client string, after uuid.UUID, limit int) ([]Endpoint, error) {
	list, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM webhook_endpoints p
		WHERE ($1 = '' OR client = $1) AND ($2::uuid IS NULL OR id > $2) AND `+notDeleted+`
		ORDER BY id LIMIT $3`, client, postgres.Nullable(after), limit)
	return list, fault.At(err, "webhook.List")
}

// Change is what becomes of an endpoint; nil fields stay as they are.
type Change struct {
	URL         *string
	Events      []string
	Description *string // empty: none
	Verified    bool    // URL need not echo a challenge
	Key         string  // the prefix of the key that asks; empty: it has none
}

// patch changes an endpoint. A new URL is a new start: a paused endpoint goes on at once, as
// soon as the URL is verified, and does not wait for a worker that is sending to the old one, which is
// fenced. The endpoint is of the key that has changed it. A key that is revoked changes nothing: that
// is an unauthenticated Error.
func patch(ctx context.Context, tx pgx.Tx, id uuid.UUID, c Change) (Endpoint, error) {
	if err := checkKey(ctx, tx, c.Key); err != nil {
		return Endpoint{}, err
	}
	return one(ctx, tx, "patch", id, `
		UPDATE webhook_endpoints p
		SET url = coalesce($2, url), events = coalesce($3, events),
		    description = CASE WHEN $4::text IS NULL THEN description ELSE nullif($4, '') END,
		    failing_since = CASE WHEN $2 <> url THEN NULL ELSE failing_since END,
		    failures = CASE WHEN $2 <> url THEN 0 ELSE failures END,
		    paused_until = CASE WHEN $2 <> url THEN NULL ELSE paused_until END,
		    verified_at = CASE WHEN $2 = url OR $2::text IS NULL THEN verified_at WHEN $5 THEN clock_timestamp() END,
		    challenge_error = CASE WHEN $2 <> url THEN NULL ELSE challenge_error END,
		    made_by = CASE WHEN $2 <> url THEN nullif($6, '') ELSE made_by END,
		    due_at = CASE WHEN $2 <> url THEN clock_timestamp() ELSE due_at END,
		    lease_until = CASE WHEN $2 <> url THEN NULL ELSE lease_until END,
		    version = version + CASE WHEN $2 <> url THEN 1 ELSE 0 END
		WHERE id = $1 AND `+notDeleted+` RETURNING `+columns, id, c.URL, c.Events, c.Description, c.Verified, c.Key)
}

// disable stops an endpoint. One that is disabled keeps its reason. Its pending deliveries
// fail, see [FailDisabled]. A worker that is sending to it is fenced, and loses its lease: nobody waits
// for it when the endpoint is enabled again.
func disable(ctx context.Context, tx pgx.Tx, id uuid.UUID, why Reason) (Endpoint, error) {
	return one(ctx, tx, "disable", id, `
		UPDATE webhook_endpoints p
		SET disabled_at = coalesce(disabled_at, clock_timestamp()), disabled_reason = coalesce(disabled_reason, $2), version = version + 1, lease_until = NULL
		WHERE id = $1 AND `+notDeleted+` RETURNING `+columns, id, why)
}

// enable lets an endpoint hear of what happens from now on. Events of the time between
// can be replayed. One that is not verified is challenged again. It is of the key that enables
// it from now on; a key that is revoked enables nothing: that is an unauthenticated Error.
func enable(ctx context.Context, tx pgx.Tx, id uuid.UUID, key string) (Endpoint, error) {
	if err := checkKey(ctx, tx, key); err != nil {
		return Endpoint{}, err
	}
	return one(ctx, tx, "enable", id, `
		UPDATE webhook_endpoints p
		SET disabled_at = NULL, disabled_reason = NULL, failing_since = NULL, failures = 0, paused_until = NULL, made_by = nullif($2, ''), `+lease.Woken+`
		WHERE id = $1 AND `+notDeleted+` RETURNING `+columns, id, key)
}

// remove deletes an endpoint and its secrets. The sweep old-records deletes its deliveries.
// A worker that is sending to it is fenced.
func remove(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	if _, err := one(ctx, tx, "remove", id, `
		UPDATE webhook_endpoints p SET deleted_at = clock_timestamp(), version = version + 1
		WHERE id = $1 AND `+notDeleted+` RETURNING `+columns, id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM webhook_secrets WHERE endpoint_id = $1`, id)
	return fault.At(err, "webhook.remove(%s)", id)
}

func one(ctx context.Context, db postgres.DB, name string, id uuid.UUID, sql string, args ...any) (Endpoint, error) {
	e, err := postgres.CollectOne(ctx, db, scan, sql, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		return Endpoint{}, unknown(id)
	}
	return e, fault.At(err, "webhook.%s(%s)", name, id)
}

func unknown(id uuid.UUID) error {
	return fault.New(fault.NotFound, "there is no webhook endpoint %s", id)
}

// checkKey rejects a key that is revoked: a process may still have it cached. It locks the key, so
// that a revocation waits for tx and finds what it has made. An empty prefix is no key.
func checkKey(ctx context.Context, tx pgx.Tx, prefix string) error {
	if prefix == "" {
		return nil
	}
	var revoked bool // the condition is not in WHERE: rows that it leaves out are not locked
	err := tx.QueryRow(ctx, `SELECT count(*) FILTER (WHERE revoked) > 0 FROM (SELECT revoked_at IS NOT NULL AS revoked FROM api_keys WHERE prefix = $1 FOR SHARE) k`, prefix).Scan(&revoked)
	if err == nil && revoked {
		err = fault.New(fault.Unauthenticated, "the API key is not known or was revoked")
	}
	return fault.At(err, "webhook.checkKey")
}

// KeyRevoked ends what a revoked key has made: its endpoints are disabled, or with a successor
// given to that key. It returns how many there were. [key.Revoke] calls it.
func KeyRevoked(ctx context.Context, tx pgx.Tx, prefix, successor string) (endpoints int, err error) {
	tag, err := tx.Exec(ctx, `
		UPDATE webhook_endpoints p
		SET made_by = coalesce(nullif($2, ''), made_by),
		    disabled_at = CASE WHEN $2 = '' THEN coalesce(disabled_at, clock_timestamp()) ELSE disabled_at END,
		    disabled_reason = CASE WHEN $2 = '' THEN coalesce(disabled_reason, 'revoked') ELSE disabled_reason END,
		    lease_until = CASE WHEN $2 = '' THEN NULL ELSE lease_until END,
		    version = version + CASE WHEN $2 = '' THEN 1 ELSE 0 END
		WHERE made_by = $1 AND `+notDeleted, prefix, successor)
	return int(tag.RowsAffected()), fault.At(err, "webhook.KeyRevoked(%s)", prefix)
}

// ClientOf returns whose an endpoint is; empty: there is none.
func ClientOf(ctx context.Context, db postgres.DB, id uuid.UUID) (client string, err error) {
	err = db.QueryRow(ctx, `SELECT coalesce((SELECT client FROM webhook_endpoints WHERE id = $1), '')`, id).Scan(&client)
	return client, fault.At(err, "webhook.ClientOf(%s)", id)
}
