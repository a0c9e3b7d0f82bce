package drawing

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
)

// SetWait stores what a draw waits for now, and when it is tried again.
func SetWait(ctx context.Context, db postgres.DB, id uuid.UUID, w job.Blocked) error {
	_, err := db.Exec(ctx, `
		INSERT INTO draw_waits (campaign_id, reason, retry_at) VALUES ($1, $2, $3)
		ON CONFLICT (campaign_id) DO UPDATE SET reason = excluded.reason, retry_at = excluded.retry_at, faults = 0`, id, w.Reason, w.RetryAt)
	return fault.At(err, "drawing.SetWait(%s)", id)
}

// addFault stores that an attempt at a draw has failed, and about when it is retried. It does
// nothing for a campaign that is not drawing.
func addFault(ctx context.Context, db postgres.DB, id uuid.UUID, retryIn time.Duration) error {
	_, err := db.Exec(ctx, `
		INSERT INTO draw_waits (campaign_id, reason, retry_at, faults)
		SELECT id, 'the last attempt failed; it is tried again', clock_timestamp() + $2 * interval '1 second', 1 FROM campaigns WHERE id = $1 AND state = 'drawing'
		ON CONFLICT (campaign_id) DO UPDATE SET reason = excluded.reason, retry_at = excluded.retry_at, faults = draw_waits.faults + 1`, id, retryIn.Seconds())
	return fault.At(err, "drawing.addFault(%s)", id)
}

// Failing returns campaigns, at most limit, of which two attempts at the draw or more have
// failed in a row.
func Failing(ctx context.Context, db postgres.DB, limit int) ([]uuid.UUID, error) {
	list, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		SELECT w.campaign_id FROM draw_waits w JOIN campaigns c ON c.id = w.campaign_id
		WHERE w.faults >= 2 AND c.state = 'drawing' ORDER BY w.campaign_id LIMIT $1`, limit)
	return list, fault.At(err, "drawing.Failing")
}

// EndWait deletes what a draw waits for.
func EndWait(ctx context.Context, db postgres.DB, id uuid.UUID) error {
	_, err := db.Exec(ctx, `DELETE FROM draw_waits WHERE campaign_id = $1`, id)
	return fault.At(err, "drawing.EndWait(%s)", id)
}

// Now returns the time of the database's clock, which decides what is due.
func Now(ctx context.Context, db postgres.DB) (now time.Time, err error) {
	err = db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	return now, fault.At(err, "drawing.Now")
}

// DrawCounts is what is known of all draws that are not done.
type DrawCounts struct {
	Campaigns   int           // that are drawing
	Oldest      time.Duration // since when the first of them is; 0: none is
	GivenUp     int           // of them, with a job that was given up
	Waits       int           // of them, that wait for something, or whose last attempt failed
	Voids       int           // of them, with a void that is announced
	Claims      int           // of them, with a claim of a worker
	OldestClaim time.Duration // since when the oldest claim was not renewed; 0: there is none
}

// CountDraws reads the campaigns that are drawing, of which there are few.
func CountDraws(ctx context.Context, db postgres.DB) (u DrawCounts, err error) {
	var since, claimed float64
	err = db.QueryRow(ctx, `
		SELECT count(*), coalesce(extract(epoch FROM max(clock_timestamp() - c.draw_started_at)), 0)::float8, count(w.campaign_id), count(v.campaign_id),
		       count(*) FILTER (WHERE EXISTS (SELECT FROM jobs j WHERE j.campaign_id = c.id AND j.kind = 'draw' AND j.state = 'failed' AND j.problem ->> 'code' = 'internal-error')),
		       count(c.execution_lock_id), coalesce(extract(epoch FROM max(clock_timestamp() - c.execution_locked_at)), 0)::float8
		FROM campaigns c LEFT JOIN draw_waits w ON w.campaign_id = c.id LEFT JOIN draw_voids v ON v.campaign_id = c.id WHERE c.state = 'drawing'`).
		Scan(&u.Campaigns, &since, &u.Waits, &u.Voids, &u.GivenUp, &u.Claims, &claimed)
	u.Oldest, u.OldestClaim = time.Duration(since*float64(time.Second)), time.Duration(claimed*float64(time.Second))
	return u, fault.At(err, "drawing.CountUnderWay")
}

// StuckDraw is what decides whether a draw under way may be voided.
type StuckDraw struct {
	StartedAt  time.Time
	RoundDueAt *time.Time // nil: not frozen, or without a beacon
	RoundKnown bool       // it is stored: the draw follows from it
	VoidsAt    *time.Time // nil: not announced
	Now        time.Time  // of the database's clock
}

// StuckOf reads a draw under way. Call it under the campaign's lock.
func StuckOf(ctx context.Context, tx pgx.Tx, id uuid.UUID) (s StuckDraw, err error) {
	err = tx.QueryRow(ctx, `
		SELECT c.draw_started_at, r.due_at, coalesce(r.is_known, false), v.voids_at, clock_timestamp()
		FROM campaigns c LEFT JOIN draw_rounds(c.id) r ON true LEFT JOIN draw_voids v ON v.campaign_id = c.id
		WHERE c.id = $1 AND c.state = 'drawing'`, id).Scan(&s.StartedAt, &s.RoundDueAt, &s.RoundKnown, &s.VoidsAt, &s.Now)
	return s, fault.At(err, "drawing.StuckOf(%s)", id)
}

// AnnounceVoid stores that a draw is voided 168 hours from now, unless its round comes before. A
// trigger refuses it while the round is not due for 24 hours, the primary key a second.
func AnnounceVoid(ctx context.Context, tx pgx.Tx, id uuid.UUID) (voidsAt time.Time, err error) {
	err = tx.QueryRow(ctx, `
		INSERT INTO draw_voids (campaign_id, announced_at, voids_at)
		SELECT $1, now.at, now.at + interval '168 hours' FROM (SELECT clock_timestamp() AS at) now RETURNING voids_at`, id).Scan(&voidsAt)
	return voidsAt, fault.At(err, "drawing.AnnounceVoid(%s)", id)
}
