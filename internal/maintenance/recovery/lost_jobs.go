package recovery

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
)

// lostJobs looks once at every ring that has been in the outbox for longer than
// its backoff. One that waits in the queue is noted as seen; one that a live
// worker holds is left alone; any other is lost, and rung for again in bundles
// with what is still to be done of it.
//
// Rings that are held stay overdue, and the oldest: so a run goes on behind
// them, and ends before its time only when it has changed max_batches full
// batches. How many are held is bounded by what the workers can hold.
//
// When Redis cannot say where tasks are, nothing is lost yet: the run fails and
// changes nothing, so that an outage does not double a backlog.
func (s *Sweeper) lostJobs(ctx context.Context) (Counts, error) {
	counts := Counts{"looked_at": 0, "waiting": 0, "held": 0, "lost": 0, "jobs_rung": 0}
	overdue, err := job.FindOverdue(ctx, s.db, s.lostJobsBackoff())
	if err != nil {
		return counts, err
	}
	limit := s.settings.Scheduler.BatchSize
	for changed := 0; changed < limit*s.settings.Scheduler.MaxBatches; {
		rings, err := overdue.Next(ctx, limit)
		if err != nil || len(rings) == 0 {
			return counts, err
		}
		found, err := s.find(ctx, rings)
		if err != nil {
			return counts, err
		}
		counts["looked_at"] += len(rings)
		counts["waiting"] += len(found[queue.Waiting])
		counts["held"] += len(found[queue.Held])
		counts["lost"] += len(found[queue.Gone]) + len(found[queue.Abandoned])
		if err := job.Seen(ctx, s.db, found[queue.Waiting]); err != nil {
			return counts, err
		}
		rung, err := s.ringAgain(ctx, found[queue.Gone], found[queue.Abandoned])
		counts["jobs_rung"] += rung
		if err != nil {
			return counts, err
		}
		changed += len(rings) - len(found[queue.Held])
	}
	return counts, nil
}

func (s *Sweeper) lostJobsBackoff() job.Backoff {
	return job.Backoff{First: s.settings.Sweeps.LostJobsBackoff, Longest: s.settings.Sweeps.LostJobsMaxBackoff, Deaths: s.settings.Worker.MaxDeliveries}
}

// find sorts rings by where their tasks are.
func (s *Sweeper) find(ctx context.Context, rings []job.OverdueRing) (map[queue.Place][]uuid.UUID, error) {
	kinds := make(map[job.Kind][]uuid.UUID)
	for _, ring := range rings {
		kinds[ring.Kind] = append(kinds[ring.Kind], ring.ID)
	}
	found := make(map[queue.Place][]uuid.UUID)
	for kind, ids := range kinds {
		places, err := s.finder.Find(ctx, string(kind), ids)
		if err != nil {
			return nil, err
		}
		for id, place := range places {
			found[place] = append(found[place], id)
		}
	}
	return found, nil
}

// ringAgain replaces lost rings and enqueues the new ones; it returns how many
// jobs it has rung for. A new ring that cannot be enqueued is found gone by a
// later run.
func (s *Sweeper) ringAgain(ctx context.Context, gone, abandoned []uuid.UUID) (jobs int, err error) {
	lost := append(gone[:len(gone):len(gone)], abandoned...)
	if len(lost) == 0 {
		return 0, nil
	}
	var rings []job.Ring
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		rings, err = job.RingAgain(ctx, tx, lost, abandoned)
		return err
	})
	if err != nil {
		return 0, err
	}
	enqueued, err := s.enqueue(ctx, rings)
	for _, ring := range rings[:enqueued] {
		jobs += len(ring.Jobs)
	}
	if jobs > 0 {
		s.logger.Info("lost jobs are rung for again", "rings_lost", len(lost), "rings", enqueued, "jobs", jobs)
	}
	if err != nil {
		return jobs, err
	}
	return jobs, s.finder.Forget(ctx, lost)
}
