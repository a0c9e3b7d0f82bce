package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// Backlog is what waits for workers, of one kind.
type Backlog struct {
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
func ReadBacklog(ctx context.Context, db postgres.DB, kinds ...job.Kind) (map[job.Kind]Backlog, error) {
	rows, err := db.Query(ctx, `
		SELECT k.kind, n.jobs, coalesce(extract(epoch FROM clock_timestamp() - o.accepted_at), 0)::float8,
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
	if err != nil {
		return nil, fault.At(err, "outbox.ReadBacklog")
	}
	all := make(map[job.Kind]Backlog)
	var kind job.Kind
	var seconds float64
	var one Backlog
	_, err = pgx.ForEachRow(rows, []any{&kind, &one.Jobs, &seconds, &one.Job, &one.Campaign}, func() error {
		one.Oldest = time.Duration(seconds * float64(time.Second))
		all[kind] = one
		return nil
	})
	return all, fault.At(err, "outbox.ReadBacklog")
}
