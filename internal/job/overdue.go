package job

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Backoff is how long a message is left alone after it was last seen: First while
// its delivery is at most Deaths, and after that twice as long for every further
// delivery, at most Longest.
//
// Deaths is how many workers a job may kill before it is given up. Until then one
// bad job must not delay the other jobs of its message. A message that comes back
// even after that has a fault that the count of attempts cannot end.
type Backoff struct {
	First   time.Duration
	Longest time.Duration
	Deaths  int
}

// Overdue is a message that has been in the outbox for longer than its backoff.
type Overdue struct {
	ID     uuid.UUID
	Kind   Kind
	SeenAt time.Time
}

// Walk goes through the messages that are overdue when it begins, the oldest
// first. It returns each once, so messages that stay overdue do not hide newer ones.
type Walk struct {
	db      postgres.DB
	backoff Backoff
	began   time.Time // by the database's clock
	last    Overdue
}

// FindOverdue begins a walk.
func FindOverdue(ctx context.Context, db postgres.DB, backoff Backoff) (*Walk, error) {
	w := &Walk{db: db, backoff: backoff}
	if err := db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&w.began); err != nil {
		return nil, fmt.Errorf("outbox.FindOverdue: %w", err)
	}
	return w, nil
}

// Next returns the next messages, at most limit, or none at the end. The two simple
// conditions on seen_at are there for the index.
func (w *Walk) Next(ctx context.Context, limit int) ([]Overdue, error) {
	found, err := postgres.Collect(ctx, w.db, pgx.RowToStructByPos[Overdue], `
		SELECT id, kind, seen_at FROM outbox_messages
		WHERE waits_for IS NULL AND (seen_at, id) > ($1, $2) AND seen_at < $3::timestamptz - $4 * interval '1 second'
		  AND seen_at < $3::timestamptz - least($4 * 2 ^ least(greatest(delivery - $5, 0), 20), $6) * interval '1 second'
		ORDER BY seen_at, id LIMIT $7`,
		w.last.SeenAt, w.last.ID, w.began, w.backoff.First.Seconds(), w.backoff.Deaths, w.backoff.Longest.Seconds(), limit)
	if err != nil {
		return nil, fmt.Errorf("outbox.Walk: %w", err)
	}
	if len(found) > 0 {
		w.last = found[len(found)-1]
	}
	return found, nil
}

// Backlog is what waits for workers, of one kind.
type Backlog struct {
	Kind     Kind
	Jobs     int           // of the oldest MostMessages messages; some of them may be final already
	Oldest   time.Duration // for how long the oldest queued job has waited; 0: none waits
	Job      uuid.UUID     // the oldest one
	Campaign uuid.UUID     // its campaign; zero: it has none
}

// mostMessages is how many messages of a kind are counted, those with the oldest jobs: a look costs the
// same, however long the backlog is.
const mostMessages = 400

// oldestMessages is how many of these are searched for the oldest queued job. A message whose
// jobs are all final is deleted in a moment.
const oldestMessages = 16

// ReadBacklog returns the backlog of each of the kinds that has messages. A job that has begun a purchase by
// card waits for others, and does not count as the oldest. The cost is MostMessages messages and
// oldestMessages * MaxJobs look-ups of jobs for each kind, at most.
func ReadBacklog(ctx context.Context, db postgres.DB, kinds ...Kind) (map[Kind]Backlog, error) {
	found, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Backlog], `
		SELECT k.kind, n.jobs, coalesce(clock_timestamp() - o.accepted_at, interval '0'),
		       coalesce(o.id, '00000000-0000-0000-0000-000000000000'), coalesce(o.campaign_id, '00000000-0000-0000-0000-000000000000')
		FROM unnest($1::text[]) AS k (kind)
		CROSS JOIN LATERAL (
			SELECT sum(cardinality(m.jobs)) AS jobs
			FROM (SELECT jobs FROM outbox_messages WHERE kind = k.kind ORDER BY jobs[1] LIMIT $2) m) n
		LEFT JOIN LATERAL (
			SELECT j.id, j.campaign_id, j.accepted_at
			FROM (SELECT jobs FROM outbox_messages WHERE kind = k.kind ORDER BY jobs[1] LIMIT $3) m
			CROSS JOIN LATERAL unnest(m.jobs) AS i (id)
			CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = i.id OFFSET 0) j
			WHERE j.state = 'queued' AND j.purchase_id IS NULL
			ORDER BY j.accepted_at LIMIT 1) o ON true
		WHERE n.jobs IS NOT NULL`, kinds, mostMessages, oldestMessages)
	all := make(map[Kind]Backlog, len(found))
	for _, one := range found {
		all[one.Kind] = one
	}
	return all, fault.At(err, "outbox.ReadBacklog")
}
