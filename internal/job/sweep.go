package job

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/sweep"
)

// The times of the sweep lost-jobs.
const (
	LostJobsEvery   = time.Second     // the interval of the sweep
	LostJobsBackoff = 5 * time.Second // a task that was not seen for this long is searched; after more than MaxDeliveries dead workers, the time doubles with each further one
)

// Enqueuer puts committed messages in the queue, and returns how many. A message that cannot be
// enqueued stays in the outbox for a later run of the sweep lost-jobs.
type Enqueuer func(ctx context.Context, messages []Message) (enqueued int, err error)

// EnqueueTo returns an Enqueuer for the queue of a client.
func EnqueueTo(client *queue.Client) Enqueuer {
	return func(ctx context.Context, messages []Message) (enqueued int, err error) {
		for _, m := range messages {
			if err := client.Enqueue(ctx, m.Task()); err != nil {
				return enqueued, err
			}
			enqueued++
		}
		return enqueued, nil
	}
}

// lostJobs is the part of the sweep lost-jobs that issues lost messages again.
type lostJobs struct {
	db      postgres.Pool
	finder  *queue.Finder
	enqueue Enqueuer
	backoff Backoff
	logger  *slog.Logger
}

// LostJobs is the part of the sweep lost-jobs that issues messages again whose task is neither queued
// nor with a live worker.
func LostJobs(db postgres.Pool, finder *queue.Finder, enqueue Enqueuer, backoff Backoff, logger *slog.Logger) sweep.Sweep {
	s := &lostJobs{db, finder, enqueue, backoff, logger}
	return sweep.Sweep{Counts: []string{"checked", "pending", "active", "lost", "jobs_reissued"}, Run: s.run}
}

// run checks every message once that has been in the outbox for longer than its
// backoff. When its task waits in the queue, the message is marked as seen. When a live
// worker has the task, the message is left alone. Any other message is lost: its jobs
// that are still queued are issued again in new messages.
//
// Messages that live workers have stay overdue and are the oldest, so they do not count
// for the limit of a run: it ends early only after changing MaxBatches full batches.
// There are only as many of them as workers take at a time.
//
// When Redis does not answer where tasks are, the run fails and changes nothing more, so that
// an outage does not double the backlog.
func (s *lostJobs) run(ctx context.Context, run sweep.Run) error {
	changed := 0
	for messages, err := range overdue(ctx, s.db, s.backoff, run.BatchSize) {
		if err != nil {
			return err
		}
		found, tasks, err := s.find(ctx, messages)
		if err != nil {
			return err
		}
		run.Counts["checked"] += len(messages)
		run.Counts["pending"] += len(found[queue.Pending])
		run.Counts["active"] += len(found[queue.Active])
		run.Counts["lost"] += len(found[queue.Missing]) + len(found[queue.Orphaned])
		if err := markSeen(ctx, s.db, found[queue.Pending]); err != nil {
			return err
		}
		reissued, err := s.reissue(ctx, found[queue.Missing], found[queue.Orphaned])
		run.Counts["jobs_reissued"] += reissued
		if err != nil {
			return err
		}
		for kind, states := range tasks {
			maps.DeleteFunc(states, func(_ uuid.UUID, state queue.TaskState) bool { return state == queue.Pending || state == queue.Active })
			if err := s.finder.Forget(ctx, string(kind), states); err != nil {
				return err
			}
		}
		if changed += len(messages) - len(found[queue.Active]); changed >= run.BatchSize*run.MaxBatches {
			return nil
		}
	}
	return nil
}

// find groups messages by the states of their tasks, which it also returns by kind.
func (s *lostJobs) find(ctx context.Context, messages []overdueMessage) (found map[queue.TaskState][]uuid.UUID, tasks map[Kind]map[uuid.UUID]queue.TaskState, err error) {
	kinds := make(map[Kind][]uuid.UUID)
	for _, m := range messages {
		kinds[m.Kind] = append(kinds[m.Kind], m.ID)
	}
	found, tasks = make(map[queue.TaskState][]uuid.UUID), make(map[Kind]map[uuid.UUID]queue.TaskState)
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
func (s *lostJobs) reissue(ctx context.Context, missing, orphaned []uuid.UUID) (jobs int, err error) {
	lost := append(missing[:len(missing):len(missing)], orphaned...)
	if len(lost) == 0 {
		return 0, nil
	}
	var messages []Message
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		messages, err = replaceMessages(ctx, tx, lost, orphaned, false)
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

// overdueMessage is a message that has been in the outbox for longer than its backoff.
type overdueMessage struct {
	ID     uuid.UUID
	Kind   Kind
	SeenAt time.Time
}

// overdue yields the messages that are overdue when it begins, the oldest first, at most limit
// at a time. It yields each once, so messages that stay overdue do not hide newer ones.
func overdue(ctx context.Context, db postgres.DB, backoff Backoff, limit int) iter.Seq2[[]overdueMessage, error] {
	return func(yield func([]overdueMessage, error) bool) {
		var began time.Time // by the database's clock
		var last overdueMessage
		err := db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&began)
		for err == nil {
			var found []overdueMessage
			// The two simple conditions on seen_at are there for the index.
			found, err = postgres.Collect(ctx, db, pgx.RowToStructByPos[overdueMessage], `
				SELECT id, kind, seen_at FROM outbox_messages
				WHERE waits_for IS NULL AND (seen_at, id) > ($1, $2) AND seen_at < $3::timestamptz - $4 * interval '1 second'
				  AND seen_at < $3::timestamptz - least($4 * 2 ^ least(greatest(delivery - $5, 0), 20), $6) * interval '1 second'
				ORDER BY seen_at, id LIMIT $7`,
				last.SeenAt, last.ID, began, backoff.First.Seconds(), backoff.Deaths, backoff.Longest.Seconds(), limit)
			if err == nil && (len(found) == 0 || !yield(found, nil)) {
				return
			}
			if err == nil {
				last = found[len(found)-1]
			}
		}
		yield(nil, fault.At(err, "job.overdue"))
	}
}
