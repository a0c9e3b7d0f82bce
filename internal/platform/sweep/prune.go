package sweep

import (
	"cmp"
	"context"
	"errors"
	"time"

	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
)

// longestPause bounds the pause after a batch.
const longestPause = time.Second

// Prune deletes old records of one kind.
type Prune struct {
	Count string        // its name in the report
	Begin func() Delete // for one run: the first batch is of the oldest records
}

// Delete deletes one batch. It reports how many it has deleted, and whether it may find more.
type Delete func(ctx context.Context, limit int) (deleted int, more bool, err error)

// OlderThan deletes what is older than its retention, batch after batch from the oldest on: remove
// returns where the next batch begins.
func OlderThan(count string, db postgres.DB, retention time.Duration,
	remove func(ctx context.Context, db postgres.DB, retention time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error),
) Prune {
	return Prune{count, func() Delete {
		var from *time.Time
		return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
			deleted, from, err = remove(ctx, db, retention, from, limit)
			return deleted, deleted == limit, err
		}
	}}
}

// OldRecords deletes what is past its retention until nothing is left, or four fifths of
// its time are used up: then it fails with [ErrMore]. It also ends when ctx is cancelled;
// what is deleted by then stays deleted. namespace names the failpoint.
//
// It deletes a batch of each kind in each round, so that no kind waits until another has no more.
// One that fails is left for the next run, and the others go on. After each batch it pauses for as
// long as the batch took: it uses half a connection at most, and less of a server that is busy.
func OldRecords(namespace string, prunes []Prune) Sweep {
	counts := []string{"batches"}
	for _, p := range prunes {
		counts = append(counts, p.Count)
	}
	return Sweep{Name: "old-records", Every: time.Minute, Interruptible: true, Counts: counts, Run: func(ctx context.Context, run Run) error {
		return deleteOld(ctx, run, namespace, prunes)
	}}
}

func deleteOld(ctx context.Context, run Run, namespace string, prunes []Prune) error {
	kinds := make(map[string]Delete, len(prunes))
	for _, p := range prunes {
		kinds[p.Count] = p.Begin()
	}
	over := time.Now().Add(longestPause)
	if deadline, ok := ctx.Deadline(); ok { // the rest of the time is for the batch that is under way
		over = time.Now().Add(time.Until(deadline) * 4 / 5)
	}
	var failed error
	for len(kinds) > 0 {
		for kind, next := range kinds {
			if ctx.Err() != nil || time.Now().After(over) {
				return cmp.Or(failed, ErrMore)
			}
			start := time.Now()
			deleted, more, err := next(ctx, run.BatchSize)
			switch {
			case errors.Is(ctx.Err(), context.Canceled):
				return cmp.Or(failed, ErrMore)
			case err != nil:
				failed = errors.Join(failed, err)
				delete(kinds, kind)
				continue
			}
			if deleted > 0 {
				failpoint.Hit("sweep.deleted", func() []string { return []string{namespace} })
				run.Counts["batches"]++
			}
			run.Counts[kind] += deleted
			if !more {
				delete(kinds, kind)
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(min(time.Since(start), longestPause)):
			}
		}
	}
	return failed
}
