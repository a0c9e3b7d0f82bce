package webhook

import (
	"cmp"
	"context"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// FailDisabled fails up to limit pending deliveries of endpoints that are disabled, and
// returns how many. It skips what is locked.
func FailDisabled(ctx context.Context, db postgres.DB, limit int) (n int, err error) {
	tag, err := db.Exec(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT d.event_id, d.endpoint_id FROM webhook_endpoints p
			CROSS JOIN LATERAL (
				SELECT event_id, endpoint_id FROM webhook_deliveries WHERE endpoint_id = p.id AND state = 'pending' LIMIT $1 FOR UPDATE SKIP LOCKED) d
			WHERE p.disabled_at IS NOT NULL LIMIT $1)
		UPDATE webhook_deliveries d SET state = 'failed', next_at = NULL, finished_at = clock_timestamp()
		FROM chosen c WHERE d.event_id = c.event_id AND d.endpoint_id = c.endpoint_id`, limit)
	return int(tag.RowsAffected()), fault.At(err, "webhook.FailDisabled")
}

// DeleteEndpoints deletes up to limit deliveries, with their attempts, of endpoints that were
// deleted; and such endpoints of which none is left. It returns how many rows of
// deliveries and endpoints it has deleted.
//
// An endpoint stays for a minute: a transaction that has found it before it was deleted may
// still be about to commit a delivery. DeleteEvents finds deliveries by their endpoints.
func DeleteEndpoints(ctx context.Context, db postgres.DB, limit int) (n int, err error) {
	err = db.QueryRow(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT d.event_id, d.endpoint_id FROM webhook_endpoints p
			CROSS JOIN LATERAL (SELECT event_id, endpoint_id FROM webhook_deliveries WHERE endpoint_id = p.id LIMIT $1 FOR UPDATE SKIP LOCKED) d
			WHERE p.deleted_at IS NOT NULL LIMIT $1),
		     attempts AS (DELETE FROM webhook_attempts a USING chosen c WHERE a.event_id = c.event_id AND a.endpoint_id = c.endpoint_id),
		     deliveries AS (DELETE FROM webhook_deliveries d USING chosen c WHERE d.event_id = c.event_id AND d.endpoint_id = c.endpoint_id RETURNING 1)
		SELECT count(*) FROM deliveries`, limit).Scan(&n)
	if err != nil || n > 0 { // more may be left
		return n, fault.At(err, "webhook.DeleteEndpoints")
	}
	err = db.QueryRow(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT id FROM webhook_endpoints p
			WHERE p.deleted_at <= clock_timestamp() - interval '1 minute' AND NOT EXISTS (SELECT FROM webhook_deliveries WHERE endpoint_id = p.id) ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED),
		     secrets AS (DELETE FROM webhook_secrets s USING chosen c WHERE s.endpoint_id = c.id),
		     gone AS (DELETE FROM webhook_endpoints p USING chosen c WHERE p.id = c.id RETURNING 1)
		SELECT count(*) FROM gone`, limit).Scan(&n)
	return n, fault.At(err, "webhook.DeleteEndpoints")
}

// DeleteEvents deletes up to limit events that happened longer ago than retention, with their
// deliveries and attempts, the oldest first. It skips what is locked. from is the cursor: nil at
// first, then what the call before has returned.
//
// Each endpoint that may have got them is read once: ids of events are in the order of
// time, so its deliveries lie side by side. IS TRUE keeps the planner from a look-up for each
// event and endpoint.
func DeleteEvents(ctx context.Context, db postgres.DB, retention time.Duration, from *time.Time, limit int) (n int, to *time.Time, err error) {
	err = db.QueryRow(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT id, client, at FROM webhook_events
			WHERE at < (SELECT clock_timestamp()) - $1 * interval '1 second' AND at >= coalesce($2, '-infinity'::timestamptz)
			ORDER BY at LIMIT $3 FOR UPDATE SKIP LOCKED),
		     attempts AS (DELETE FROM webhook_attempts a USING chosen c WHERE a.event_id = c.id),
		     finished AS MATERIALIZED (
			SELECT p.id FROM (SELECT DISTINCT client FROM chosen) c CROSS JOIN LATERAL (SELECT id FROM webhook_endpoints WHERE client = c.client OFFSET 0) p
			UNION
			SELECT id FROM webhook_endpoints WHERE EXISTS (SELECT FROM chosen WHERE client IS NULL)),
		     deliveries AS (
			DELETE FROM webhook_deliveries d USING finished t
			WHERE d.endpoint_id = t.id AND (d.event_id IN (SELECT id FROM chosen)) IS TRUE
			  AND d.event_id BETWEEN (SELECT id FROM chosen ORDER BY id LIMIT 1) AND (SELECT id FROM chosen ORDER BY id DESC LIMIT 1)),
		     events AS (DELETE FROM webhook_events e USING chosen c WHERE e.id = c.id RETURNING e.at)
		SELECT count(*), max(at) FROM events`, retention.Seconds(), from, limit).Scan(&n, &to)
	return n, cmp.Or(to, from), fault.At(err, "webhook.DeleteEvents")
}

// Backlog is how many deliveries wait, and for how long the oldest has been due.
type Backlog struct {
	Endpoints   int // that something is due for, and that are not paused
	Disabled    int // because of their answers, in the last 24 hours
	Paused      int
	Oldest      time.Duration // of what is due for an endpoint that is not paused
	Failing     time.Duration // for how long nothing has arrived at the endpoint that has failed for the longest time; 0: none fails
	Undelivered int           // events that wait for endpoints that fail, maxBacklog of each at most
}

// maxBacklog bounds what is counted of one endpoint.
const maxBacklog = 20_000

// CountWaiting reports how far deliveries are behind. It reads one row of each endpoint, and the
// backlog of those that fail.
func CountWaiting(ctx context.Context, db postgres.DB) (w Backlog, err error) {
	err = db.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE d.next_at IS NOT NULL), count(*) FILTER (WHERE p.disabled_reason IN ('gone', 'failing') AND p.disabled_at > clock_timestamp() - interval '24 hours'),
		       count(*) FILTER (WHERE p.disabled_at IS NULL AND p.paused_until > clock_timestamp()),
		       coalesce(extract(epoch FROM clock_timestamp() - min(d.next_at)), 0) * interval '1 second',
		       coalesce(extract(epoch FROM clock_timestamp() - min(p.failing_since) FILTER (WHERE p.disabled_at IS NULL)), 0) * interval '1 second',
		       coalesce(sum(b.events), 0)
		FROM webhook_endpoints p
		LEFT JOIN LATERAL (
			SELECT count(*) AS events FROM (
				SELECT FROM webhook_deliveries
				WHERE endpoint_id = p.id AND state = 'pending' AND p.failing_since IS NOT NULL AND p.disabled_at IS NULL LIMIT $1) w) b ON true
		LEFT JOIN LATERAL (
			SELECT next_at FROM webhook_deliveries
			WHERE endpoint_id = p.id AND state = 'pending' AND next_at <= clock_timestamp() AND p.disabled_at IS NULL AND p.verified_at IS NOT NULL
			  AND (p.paused_until IS NULL OR p.paused_until <= clock_timestamp())
			ORDER BY next_at LIMIT 1) d ON true
		WHERE p.deleted_at IS NULL`, maxBacklog).Scan(&w.Endpoints, &w.Disabled, &w.Paused, &w.Oldest, &w.Failing, &w.Undelivered)
	return w, fault.At(err, "webhook.CountWaiting")
}

// CountDue counts the events that are due for endpoints that are not disabled, those of paused ones too, maxBacklog at most, and
// returns for how long the oldest of them has been due.
func CountDue(ctx context.Context, db postgres.DB) (n int, oldest time.Duration, err error) {
	err = db.QueryRow(ctx, `
		SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(next_at)), 0) * interval '1 second' FROM (
			SELECT d.next_at FROM webhook_endpoints p JOIN webhook_deliveries d ON d.endpoint_id = p.id
			WHERE d.state = 'pending' AND d.next_at <= (SELECT clock_timestamp()) AND p.disabled_at IS NULL AND p.deleted_at IS NULL LIMIT $1) due`, maxBacklog).Scan(&n, &oldest)
	return n, oldest, fault.At(err, "webhook.CountDue")
}
