package watch

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// Jobs lets any number of clients of one process wait for jobs. It costs one
// Redis subscription, one read per announcement for the jobs that somebody here
// waits for, and one read per interval for all of them in case an announcement
// was missed: often while Redis is away, seldom otherwise.
type Jobs struct {
	db            postgres.DB
	announcements *Announcements
	interval      time.Duration
	logger        *slog.Logger
	listening     atomic.Bool

	mu      sync.Mutex
	waiters map[uuid.UUID][]*Waiter
}

// seldom is how many intervals pass between two reads while announcements arrive.
const seldom = 8

// readTimeout bounds one read of jobs that are waited for.
const readTimeout = 5 * time.Second

// listenTimeout is the silence after which the subscription is checked.
const listenTimeout = 5 * time.Second

// Waiter waits for one job. Stop it when done.
type Waiter struct {
	watch *Jobs
	id    uuid.UUID
	final chan job.Job
}

// NewJobs returns a Jobs; Run must run for it to notice anything.
func NewJobs(db postgres.DB, announcements *Announcements, interval time.Duration, logger *slog.Logger) *Jobs {
	return &Jobs{db: db, announcements: announcements, interval: interval, logger: logger, waiters: make(map[uuid.UUID][]*Waiter)}
}

// Waiter registers an interest in a job. Register before the job can become
// final, or read it once afterwards, and no announcement is missed.
func (w *Jobs) Waiter(id uuid.UUID) *Waiter {
	waiter := &Waiter{watch: w, id: id, final: make(chan job.Job, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters[id] = append(w.waiters[id], waiter)
	return waiter
}

// Final delivers the job once it is final.
func (w *Waiter) Final() <-chan job.Job { return w.final }

// Stop ends the interest.
func (w *Waiter) Stop() {
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	others := w.watch.waiters[w.id]
	for i, other := range others {
		if other == w {
			others = append(others[:i:i], others[i+1:]...)
			break
		}
	}
	if len(others) == 0 {
		delete(w.watch.waiters, w.id)
	} else {
		w.watch.waiters[w.id] = others
	}
}

// Waiting returns how many jobs are waited for.
func (w *Jobs) Waiting() int { return len(w.all()) }

// Run listens and polls until ctx ends.
func (w *Jobs) Run(ctx context.Context) {
	heard := make(chan []uuid.UUID, 256)
	var listener sync.WaitGroup
	listener.Go(func() { w.listen(ctx, heard) })
	defer listener.Wait()
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for tick := 1; ; {
		select {
		case <-ctx.Done():
			return
		case ids := <-heard:
			w.deliver(ctx, w.wanted(drain(heard, ids)))
		case <-ticker.C:
			if tick++; tick%seldom == 0 || !w.listening.Load() {
				w.deliver(ctx, w.all())
			}
		}
	}
}

// drain adds to ids what else was heard in the meantime.
func drain(heard <-chan []uuid.UUID, ids []uuid.UUID) []uuid.UUID {
	for len(ids) < 1024 {
		select {
		case more := <-heard:
			ids = append(ids, more...)
		default:
			return ids
		}
	}
	return ids
}

// listen passes on what is announced. The client library reconnects and
// subscribes again by itself.
func (w *Jobs) listen(ctx context.Context, heard chan<- []uuid.UUID) {
	subscription := w.announcements.rdb.Subscribe(ctx, w.announcements.channel)
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // a read does not heed the context
	defer func() { _ = subscription.Close() }()
	for ctx.Err() == nil {
		message, err := subscription.ReceiveTimeout(ctx, listenTimeout)
		if isTimeout(err) { // silence: is anybody there?
			err = subscription.Ping(ctx)
			message = nil
		}
		if err != nil {
			if w.listening.Swap(false) && ctx.Err() == nil {
				w.logger.Warn("announcements of final jobs are not heard; polling", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(w.interval):
			}
			continue
		}
		switch m := message.(type) {
		case *redis.Subscription:
			w.listening.Store(true)
		case *redis.Message:
			select {
			case heard <- parseAnnouncement(m.Payload):
			default: // a poll will find them
			}
		}
	}
}

func isTimeout(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return ok && network.Timeout()
}

// wanted returns those of the ids that somebody here waits for, each once.
func (w *Jobs) wanted(ids []uuid.UUID) []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[uuid.UUID]bool, len(ids))
	var mine []uuid.UUID
	for _, id := range ids {
		if len(w.waiters[id]) > 0 && !seen[id] {
			seen[id] = true
			mine = append(mine, id)
		}
	}
	return mine
}

func (w *Jobs) all() []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(w.waiters))
	for id := range w.waiters {
		ids = append(ids, id)
	}
	return ids
}

// deliver reads jobs and hands the final ones to their waiters.
func (w *Jobs) deliver(ctx context.Context, ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	jobs, err := job.GetAll(ctx, w.db, ids)
	if err != nil {
		if ctx.Err() == nil {
			w.logger.Warn("jobs that clients wait for could not be read", "error", err)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range jobs {
		if !j.State.Final() {
			continue
		}
		for _, waiter := range w.waiters[j.ID] {
			select {
			case waiter.final <- j:
			default: // it has been told already
			}
		}
	}
}
