package recovery

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
	"triprize/internal/postgres"
	"triprize/internal/queue"
)

// lostJobs looks for every ring that has been in the outbox for longer than its
// backoff. One that waits in the queue is noted as seen; one that a live worker
// holds is left alone; any other is lost, and rung for again in bundles with
// what is still to be done of it.
//
// When Redis cannot say where tasks are, nothing is lost yet: the run fails and
// changes nothing, so that an outage does not double a backlog.
func (s *Sweeper) lostJobs(ctx context.Context) (Counts, error) {
	counts := Counts{"looked_at": 0, "waiting": 0, "held": 0, "lost": 0, "jobs_rung": 0}
	sweeps := s.settings.Sweeps
	held := make(map[uuid.UUID]bool) // seen by this run; they stay overdue
	err := s.batches(func(limit int) (int, error) {
		overdue, err := job.Overdue(ctx, s.db, sweeps.LostJobsBackoff, sweeps.LostJobsMaxBackoff, limit+len(held))
		if err != nil {
			return 0, err
		}
		waiting, lost := []uuid.UUID(nil), []uuid.UUID(nil)
		for kind, ids := range byKind(overdue, held) {
			places, err := s.finder.Find(ctx, string(kind), ids)
			if err != nil {
				return 0, err
			}
			for id, place := range places {
				switch place {
				case queue.Waiting:
					waiting = append(waiting, id)
				case queue.Held:
					held[id] = true
					counts["held"]++
				case queue.Gone:
					lost = append(lost, id)
				}
				counts["looked_at"]++
			}
		}
		counts["waiting"] += len(waiting)
		counts["lost"] += len(lost)
		if err := job.Seen(ctx, s.db, waiting); err != nil {
			return 0, err
		}
		rung, err := s.ringAgain(ctx, lost)
		counts["jobs_rung"] += rung
		return len(waiting) + len(lost), err
	})
	return counts, err
}

// ringAgain replaces lost rings and enqueues the new ones; it returns how many
// jobs they call for.
func (s *Sweeper) ringAgain(ctx context.Context, lost []uuid.UUID) (jobs int, err error) {
	if len(lost) == 0 {
		return 0, nil
	}
	var rings []job.Ring
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		rings, err = job.RingAgain(ctx, tx, lost)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, ring := range rings {
		jobs += len(ring.Jobs)
	}
	if jobs > 0 {
		s.logger.Info("lost jobs are rung for again", "rings_lost", len(lost), "rings", len(rings), "jobs", jobs)
	}
	if _, err := s.enqueue(ctx, rings); err != nil {
		return jobs, err
	}
	return jobs, s.finder.Forget(ctx, lost)
}

func byKind(overdue []job.OverdueRing, except map[uuid.UUID]bool) map[job.Kind][]uuid.UUID {
	kinds := make(map[job.Kind][]uuid.UUID)
	for _, ring := range overdue {
		if !except[ring.ID] {
			kinds[ring.Kind] = append(kinds[ring.Kind], ring.ID)
		}
	}
	return kinds
}
