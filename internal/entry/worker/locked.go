package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"triprize/internal/platform/queue"
	"triprize/internal/service/sale"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// A campaign that stays locked costs next to nothing. Its jobs are not tried, and their tasks end at once;
// the jobs stay queued in Postgres, in the outbox. Once a second the worker looks whether
// the campaign is free: one transaction for all such campaigns. Then it puts their jobs back
// into the queue, the oldest first, as many as possible in one task. If the worker dies
// meanwhile, the sweep lost-jobs does that.
const (
	// parkAfter is how often in a row a job finds its campaign locked until the campaign
	// counts as locked. With the pauses between, that is about a second.
	parkAfter = walletAfter + 8
	// lookEvery is how far apart the looks are; there are none while nothing is locked. The
	// first one comes at once: one wait in vain may have been for another worker's batch.
	lookEvery = time.Second
	// lookTimeout bounds one look.
	lookTimeout = 10 * time.Second
	// warnAfter is how long a campaign stays locked until the log names it.
	warnAfter = 5 * time.Second
	// warnMost is how many campaigns one look warns of: others come in the next.
	warnMost = 10
	// regroupMost is how many messages one transaction regroups.
	regroupMost = 32
)

// errParked is the error of a task whose jobs are all final or parked: it ends, and its
// message stays in the outbox.
var errParked = queue.Later(errBusy)

// watchLocked looks after what is parked, until ctx ends.
func (w *Worker) watchLocked(ctx context.Context) {
	var looked time.Time
	for {
		select {
		case <-w.parking.wake:
		case <-ctx.Done():
			return
		}
		for !w.parking.empty() {
			select {
			case <-time.After(lookEvery - time.Since(looked)):
			case <-ctx.Done():
				return
			}
			looked = time.Now()
			if err := w.look(ctx); err != nil && ctx.Err() == nil {
				w.logger.Warn("locked campaigns are not looked after; the next look is in a second", "error", err)
			}
		}
	}
}

// look puts the jobs of campaigns that are free again back into the queue, and keeps those
// of others together.
func (w *Worker) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	free, err := w.unlocked(ctx)
	over := w.parking.free(free)
	if kept := w.parking.placed(); len(kept) > 0 { // so that the sweep lost-jobs leaves them alone, whatever else fails
		err = errors.Join(err, outbox.MarkSeen(ctx, w.db, kept))
	}
	err = errors.Join(err, w.regroup(ctx))
	for id, c := range over {
		if c.warned {
			w.logger.Info("a campaign is not locked any more: its jobs go on", "campaign", id, "locked_for", time.Since(c.since).Round(time.Millisecond), "jobs", c.jobs())
		}
	}
	for id, c := range w.parking.lasting(warnAfter, warnMost) {
		w.warn(ctx, id, c)
	}
	return err
}

// unlocked returns the locked campaigns that are free again. It waits for few of them: a
// campaign in which other workers sell all the time is never free without a wait.
func (w *Worker) unlocked(ctx context.Context) (free []uuid.UUID, err error) {
	locked := w.parking.locked()
	if len(locked) == 0 {
		return nil, nil
	}
	if free, err = w.ender.Unlocked(ctx, locked, sale.SkipLocked); err != nil {
		return nil, err
	}
	waits := &waits{left: mostWaits}
	for _, id := range locked { // in a random order
		if slices.Contains(free, id) || !waits.take() {
			continue
		}
		one, err := w.ender.Unlocked(ctx, []uuid.UUID{id}, waitForCampaign)
		if err != nil {
			return nil, err
		}
		free = append(free, one...)
	}
	return free, nil
}

// regroup gives parked messages their campaigns, and dispatches those of free campaigns.
func (w *Worker) regroup(ctx context.Context) error {
	ids := w.parking.take()
	for len(ids) > 0 {
		n := min(len(ids), regroupMost)
		messages, err := w.ender.Regroup(ctx, ids[:n])
		if err != nil {
			w.parking.park(ids...)
			return fmt.Errorf("regroup: %w", err)
		}
		ids = ids[n:]
		w.dispatcher.Dispatch(outbox.Tasks(w.parking.place(messages))...)
	}
	return nil
}

// warn logs which session has locked a campaign, once in an episode.
func (w *Worker) warn(ctx context.Context, id uuid.UUID, c *lockedCampaign) {
	locker, err := campaign.FindLocker(ctx, w.db, id)
	if err != nil {
		w.logger.Debug("the session that has locked a campaign is not found", "campaign", id, "error", err)
	}
	w.logger.Warn("a campaign stays locked: its purchases and cancellations wait", "campaign", id,
		"pid", locker.PID, "application", locker.Application, "locked_for", time.Since(c.since).Round(time.Millisecond), "jobs", c.jobs())
}

// splitParked returns those of the jobs whose campaigns are not known to be locked, and
// whether there are others.
func (w *Worker) splitParked(jobs []job.Ref) (rest []job.Ref, parked bool) {
	rest = slices.DeleteFunc(slices.Clone(jobs), func(ref job.Ref) bool { return w.parking.has(ref.CampaignID) })
	return rest, len(rest) < len(jobs)
}

// dropParked notes the campaigns of jobs that found them locked too often, and leaves out
// the jobs of campaigns that are known to be locked.
func (w *Worker) dropParked(items []*item) []*item {
	for _, it := range items {
		if it.locked >= parkAfter {
			w.parking.note(it.CampaignID)
		}
	}
	return slices.DeleteFunc(items, func(it *item) bool { return w.parking.has(it.CampaignID) })
}

// keptSlot is the right of one task to keep its slot although its jobs are locked.
type keptSlot struct {
	slots *semaphore.Weighted
	has   bool
}

// keep reports whether the task may keep its slot.
func (s *keptSlot) keep() bool {
	s.has = s.has || s.slots.TryAcquire(1)
	return s.has
}

func (s *keptSlot) release() {
	if s.has {
		s.slots.Release(1)
	}
}

// lockedForLong tells whether all jobs were put off so often that their rows are locked for
// long, and not by another batch.
func lockedForLong(items []*item) bool {
	for _, it := range items {
		if it.putOff < walletAfter {
			return false
		}
	}
	return true
}
