package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
)

// lostJobs issues the jobs again that wait for campaigns which are free, see resumeJobs, and lost ones.
func (s *Sweeper) lostJobs(ctx context.Context) (Counts, error) {
	counts := Counts{"looked_at": 0, "pending": 0, "active": 0, "lost": 0, "jobs_reissued": 0, "jobs_resumed": 0}
	return counts, errors.Join(s.resumeJobs(ctx, counts), s.reissueLost(ctx, counts)) // one does not hold up the other
}

// reissueLost looks once at every message that has been in the outbox for longer than its
// backoff. When its task waits in the queue, the message is marked as seen. When a live
// worker has the task, the message is left alone. Any other message is lost: its jobs
// that are still queued are issued again in new messages.
//
// Messages that live workers have stay overdue and are the oldest, so they do not count
// for the limit of a run: it ends early only after changing maxBatches full batches.
// There are only as many of them as workers take at a time.
//
// When Redis cannot say where tasks are, the run fails and changes nothing more, so that
// an outage does not double the backlog.
func (s *Sweeper) reissueLost(ctx context.Context, counts Counts) error {
	overdue, err := job.FindOverdue(ctx, s.db, s.lostJobsBackoff())
	if err != nil {
		return err
	}
	limit := s.settings.Scheduler.BatchSize
	for changed := 0; changed < limit*s.settings.Scheduler.MaxBatches; {
		messages, err := overdue.Next(ctx, limit)
		if err != nil || len(messages) == 0 {
			return err
		}
		found, tasks, err := s.find(ctx, messages)
		if err != nil {
			return err
		}
		counts["looked_at"] += len(messages)
		counts["pending"] += len(found[queue.Pending])
		counts["active"] += len(found[queue.Active])
		counts["lost"] += len(found[queue.Missing]) + len(found[queue.Orphaned])
		if err := job.MarkSeen(ctx, s.db, found[queue.Pending]); err != nil {
			return err
		}
		reissued, err := s.reissue(ctx, found[queue.Missing], found[queue.Orphaned])
		counts["jobs_reissued"] += reissued
		if err != nil {
			return err
		}
		for kind, states := range tasks {
			maps.DeleteFunc(states, func(_ uuid.UUID, state queue.TaskState) bool { return state == queue.Pending || state == queue.Active })
			if err := s.finder.Forget(ctx, string(kind), states); err != nil {
				return err
			}
		}
		changed += len(messages) - len(found[queue.Active])
	}
	return nil
}

// The times of the sweep lost-jobs.
const (
	LostJobsEvery   = time.Second     // the interval of the sweep
	LostJobsBackoff = 5 * time.Second // a task that was not seen for this long is looked for; after more than MaxDeliveries dead workers, the time doubles with each further one
)

func (s *Sweeper) lostJobsBackoff() job.Backoff {
	return job.Backoff{First: cmp.Or(s.settings.Sweeps.LostJobsBackoff, LostJobsBackoff), Longest: cmp.Or(s.settings.Sweeps.LostJobsMaxBackoff, 5*time.Minute),
		Deaths: cmp.Or(s.settings.Worker.MaxDeliveries, job.MaxDeliveries)}
}

// find groups messages by the states of their tasks, which it also returns by kind.
func (s *Sweeper) find(ctx context.Context, messages []job.Overdue) (found map[queue.TaskState][]uuid.UUID, tasks map[job.Kind]map[uuid.UUID]queue.TaskState, err error) {
	kinds := make(map[job.Kind][]uuid.UUID)
	for _, m := range messages {
		kinds[m.Kind] = append(kinds[m.Kind], m.ID)
	}
	found, tasks = make(map[queue.TaskState][]uuid.UUID), make(map[job.Kind]map[uuid.UUID]queue.TaskState)
	for kind, ids := range kinds {
		if tasks[kind], err = s.finder.Find(ctx, string(kind), ids); err != nil {
			return nil, nil, err
		}
		for id, state := range tasks[kind] {
			found[state] = append(found[state], id)
		}
	}
	return found, tasks, nil
}

// reissue replaces lost messages and enqueues the new ones. It returns how many jobs
// were enqueued. A later run finds a new message that could not be enqueued.
func (s *Sweeper) reissue(ctx context.Context, missing, orphaned []uuid.UUID) (jobs int, err error) {
	lost := append(missing[:len(missing):len(missing)], orphaned...)
	if len(lost) == 0 {
		return 0, nil
	}
	var messages []job.Message
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		messages, err = job.Reissue(ctx, tx, lost, orphaned)
		return err
	})
	if err != nil {
		return 0, err
	}
	enqueued, err := s.enqueue(ctx, messages)
	for _, m := range messages[:enqueued] {
		jobs += len(m.Jobs)
	}
	if jobs > 0 {
		s.logger.Info("lost jobs are issued again", "lost", len(lost), "messages", enqueued, "jobs", jobs)
	}
	return jobs, err
}

// moneyIsSettled is a condition on a job j: no payment or refund of its purchase is open.
// It is a subquery and no join, so that it is one look-up for each job that is found.
const moneyIsSettled = `coalesce((SELECT p.state FROM purchases p WHERE p.job_id = j.id)
	NOT IN ('pending', 'awaiting_action', 'refunding'), true)`

// expiredJobs deletes final jobs that are past their retention, the oldest first. A run
// goes on from the last batch: the rows of earlier batches are still in the index, and
// Postgres would pass over all of them again for each batch.
func (s *Sweeper) expiredJobs() prune {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		err = s.db.QueryRow(ctx, `
			WITH old AS MATERIALIZED (
				SELECT id, expires_at FROM jobs j
				WHERE expires_at >= coalesce($2, '-infinity'::timestamptz) AND expires_at < statement_timestamp()
				  AND state IN ('succeeded', 'failed') AND `+moneyIsSettled+`
				ORDER BY expires_at LIMIT $1 FOR UPDATE OF j SKIP LOCKED
			), deleted AS (
				DELETE FROM jobs WHERE id = ANY(ARRAY(SELECT id FROM old))
			)
			SELECT count(*), coalesce(max(expires_at), $2) FROM old`, limit, from).Scan(&deleted, &from)
		if err != nil {
			return 0, false, fmt.Errorf("recovery.expiredJobs: %w", err)
		}
		return deleted, deleted == limit, nil
	}
}

// refusedJobs deletes jobs of purchases and cancellations that were refused longer ago
// than refused jobs are kept. A list in refused_jobs is of one transaction that finalized
// jobs; a batch is as many lists as have limit jobs together. A job that is not deleted
// now is kept as long as others.
func (s *Sweeper) refusedJobs() prune {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		var lists int
		err = s.db.QueryRow(ctx, `
			WITH due AS MATERIALIZED (
				SELECT id, refused_at, jobs FROM refused_jobs
				WHERE refused_at >= coalesce($2, '-infinity'::timestamptz) AND refused_at < statement_timestamp() - $3 * interval '1 second'
				ORDER BY refused_at LIMIT $1 FOR UPDATE SKIP LOCKED
			), lists AS MATERIALIZED (
				SELECT id, refused_at, jobs
				FROM (SELECT *, sum(cardinality(jobs)) OVER (ORDER BY refused_at, id) AS jobs_so_far FROM due) AS d
				WHERE jobs_so_far - cardinality(jobs) < $1
			), done AS (
				DELETE FROM refused_jobs WHERE id = ANY(ARRAY(SELECT id FROM lists))
			), old AS MATERIALIZED (
				SELECT id FROM jobs j
				WHERE id = ANY(ARRAY(SELECT unnest(jobs) FROM lists))
				  AND state = 'failed' AND kind IN ('purchase', 'cancellation') AND `+moneyIsSettled+`
				FOR UPDATE OF j SKIP LOCKED
			), deleted AS (
				DELETE FROM jobs WHERE id = ANY(ARRAY(SELECT id FROM old))
			)
			SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM lists), coalesce((SELECT max(refused_at) FROM lists), $2)`,
			limit, from, s.settings.Retention.Refused.Seconds()).Scan(&deleted, &lists, &from)
		if err != nil {
			return 0, false, fmt.Errorf("recovery.refusedJobs: %w", err)
		}
		return deleted, lists > 0, nil
	}
}
