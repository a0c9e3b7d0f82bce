package boot

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/webhook"
)

const (
	dueApart     = 10 * time.Millisecond // between the begins of two batches
	dueCommits   = 256                   // in a batch
	dueEndpoints = 256                   // in a statement
	duePending   = 4096                  // commits that wait for a batch; any more are left to the sweep due-items
	dueTimeout   = 2 * time.Second
)

// endpoints makes tasks for webhook endpoints that commits of this process have made due, at once:
// the sweep due-items is for what is lost, and for attempts that come later. However many events
// a commit has, and however many commits there are, an endpoint has one task.
type endpoints struct {
	p       *Process
	queue   *queue.Client
	batches *batch.Coalescer[string, struct{}] // endpoints of a commit, as its notice names them
}

// watchEndpoints begins to do that for commits of some pools; close ends it.
func (p *Process) watchEndpoints(pools ...*pgxpool.Pool) *endpoints {
	e := &endpoints{p: p, queue: queue.NewClient(p.Redis, p.Settings.Redis.Namespace)}
	e.batches = batch.NewQuiet(batch.Options{Size: dueCommits, MinInterval: dueApart, InFlight: 1, Pending: duePending,
		Timeout: cmp.Or(p.Settings.Redis.Timeout, dueTimeout)}, e.enqueueDue)
	for _, pool := range pools {
		postgres.OnNotice(pool, webhook.DueNotice, func(ids string) { _ = e.batches.Submit(ids) }) // full: the sweep due-items enqueues it
	}
	return e
}

func (e *endpoints) close() { e.batches.Close() }

// enqueueDue takes those that are due and that no worker has, and enqueues their tasks. One that a worker
// has is named again when the worker releases it.
func (e *endpoints) enqueueDue(ctx context.Context, commits []string) error {
	var ids []uuid.UUID
	for _, named := range commits {
		for text := range strings.SplitSeq(named, ",") {
			if id, err := uuid.Parse(text); err == nil {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	for some := range slices.Chunk(slices.Compact(ids), dueEndpoints) {
		due, err := webhook.Leases.TakeDueOf(ctx, e.p.DB, some, webhook.ReenqueueAfter)
		if err == nil {
			_, err = webhook.Leases.Enqueue(ctx, e.p.DB, e.queue, due)
		}
		if err != nil {
			e.p.Logger.Warn("webhook endpoints are due, and have no tasks; the sweep due-items will enqueue them", "error", err)
			return err
		}
	}
	return nil
}
