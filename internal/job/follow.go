package job

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/postgres"
)

// Jobs lets any number of clients of one process follow jobs. It has one subscription
// in Redis, and reads the announced jobs that have waiters. In case an announcement was
// lost it also reads all jobs that have waiters: at every interval while Redis is down,
// otherwise at every eighth.
type Jobs struct {
	db            postgres.DB
	announcements *Announcements
	interval      time.Duration
	logger        *slog.Logger
	announced     func(ids []uuid.UUID)
	listening     atomic.Bool

	mu      sync.Mutex
	waiters map[uuid.UUID][]*Waiter
}

// pollEvery is how many intervals pass between two polls while the subscription works.
const pollEvery = 8

// readTimeout bounds one read of jobs.
const readTimeout = 5 * time.Second

// listenTimeout is how long the subscription may be silent before it is checked.
const listenTimeout = 5 * time.Second

// Waiter follows one job. Call Stop when done.
type Waiter struct {
	watch   *Jobs
	id      uuid.UUID
	changes chan Status // has room for one: the newest, until the waiter takes it
	known   string      // the version last put into changes, or that the waiter has; guarded by the lock of Jobs
}

// VersionOf is a short name for what clients see of a job that changes: its state, and
// its progress while it is not final.
func VersionOf(s Status) string {
	if s.State.Final() || s.Progress == nil || *s.Progress == (Progress{}) {
		return string(s.State)
	}
	text, _ := json.Marshal(s.Progress) // cannot fail
	sum := sha256.Sum256(text)
	return string(s.State) + "." + base64.RawURLEncoding.EncodeToString(sum[:9])
}

// NewJobs returns a Jobs; Run must run for it to notice anything. It calls announced with
// all announced jobs, of whichever process; announced must not block.
func NewJobs(db postgres.DB, announcements *Announcements, interval time.Duration, logger *slog.Logger, announced func(ids []uuid.UUID)) *Jobs {
	return &Jobs{db: db, announcements: announcements, interval: interval, logger: logger, announced: announced, waiters: make(map[uuid.UUID][]*Waiter)}
}

// Waiter registers a waiter for a job. Call it before the job can change, or read
// the job once after the call: then no announcement is missed. The waiter is notified when the
// job is anything but newly queued; see Has.
func (w *Jobs) Waiter(id uuid.UUID) *Waiter {
	waiter := &Waiter{watch: w, id: id, changes: make(chan Status, 1), known: string(Queued)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters[id] = append(w.waiters[id], waiter)
	return waiter
}

// Changes delivers the status of the job whenever it differs from what was delivered before, until
// it is final. A newer one replaces one that is not taken yet.
func (w *Waiter) Changes() <-chan Status { return w.changes }

// Has sets the status that the caller has read after it registered the waiter: it is notified of
// differences from that. An earlier entry in Changes may be older and is withdrawn, unless it
// is final.
func (w *Waiter) Has(s Status) {
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	select {
	case earlier := <-w.changes:
		if earlier.State.Final() {
			w.changes <- earlier
			return
		}
	default:
	}
	w.known = VersionOf(s)
}

// offer puts a status into changes, unless the waiter knows its version. It never blocks, because all that send
// hold the lock of Jobs, and empty the channel first.
func (w *Waiter) offer(s Status) {
	version := VersionOf(s)
	if version == w.known {
		return
	}
	select {
	case <-w.changes: // not taken
	default:
	}
	w.known = version
	w.changes <- s
}

// Stop removes the waiter.
func (w *Waiter) Stop() {
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	w.watch.waiters[w.id] = slices.DeleteFunc(w.watch.waiters[w.id], func(other *Waiter) bool { return other == w })
	if len(w.watch.waiters[w.id]) == 0 {
		delete(w.watch.waiters, w.id)
	}
}

// Waiting returns how many jobs have waiters.
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
			w.deliver(ctx, w.wanted(drainAnnounced(heard, ids)))
		case <-ticker.C:
			if tick++; tick%pollEvery == 0 || !w.listening.Load() {
				w.deliver(ctx, w.all())
			}
		}
	}
}

// drainAnnounced adds to ids those of the announcements that have arrived in the meantime.
func drainAnnounced(heard <-chan []uuid.UUID, ids []uuid.UUID) []uuid.UUID {
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

// listen passes on announcements, and subscribes again after an error.
func (w *Jobs) listen(ctx context.Context, heard chan<- []uuid.UUID) {
	for ctx.Err() == nil {
		err := w.receive(ctx, heard)
		if w.listening.Swap(false) && ctx.Err() == nil {
			w.logger.Warn("no subscription to announcements of final jobs; polling", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.interval):
		}
	}
}

// receive passes on announcements until the connection fails.
func (w *Jobs) receive(ctx context.Context, heard chan<- []uuid.UUID) error {
	subscription := w.announcements.rdb.Subscribe(ctx, w.announcements.channel)
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // a read does not end with the context
	defer func() { _ = subscription.Close() }()
	for pinged := false; ; {
		message, err := subscription.ReceiveTimeout(ctx, listenTimeout)
		if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() && !pinged { // silence: without an answer to a PING the connection is dead
			if err = subscription.Ping(ctx); err == nil {
				pinged = true
				continue
			}
		}
		if err != nil {
			return err
		}
		pinged = false
		switch m := message.(type) {
		case *redis.Subscription:
			w.listening.Store(true)
		case *redis.Message:
			ids := parseAnnouncement(m.Payload)
			w.announced(ids)
			select {
			case heard <- ids:
			default: // a poll will find them
			}
		}
	}
}

// wanted returns those of the ids that have waiters, each once.
func (w *Jobs) wanted(ids []uuid.UUID) []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	mine := make(map[uuid.UUID]bool)
	for _, id := range ids {
		if len(w.waiters[id]) > 0 {
			mine[id] = true
		}
	}
	return slices.Collect(maps.Keys(mine))
}

func (w *Jobs) all() []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.waiters))
}

// deliver reads jobs and notifies their waiters of changes.
func (w *Jobs) deliver(ctx context.Context, ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	type found struct {
		id uuid.UUID
		Status
	}
	jobs, err := postgres.Collect(ctx, w.db, func(row pgx.CollectableRow) (f found, err error) {
		err = row.Scan(f.targets(&f.id)...)
		return f, err
	}, `SELECT j.id, `+statusColumns+` FROM unnest($1::uuid[]) AS i (id) CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = i.id) j`, ids)
	if err != nil {
		if ctx.Err() == nil {
			w.logger.Warn("jobs that clients wait for could not be read", "error", err)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range jobs {
		for _, waiter := range w.waiters[j.id] {
			waiter.offer(j.Status)
		}
	}
}

// Announcements is the channel in Redis on which workers and sweeps announce jobs that are
// final or have changed. A message is a list of ids, 16 bytes each. It only wakes waiters early: they
// read the job in Postgres, and poll in case they miss a message.
type Announcements struct {
	rdb     redis.UniversalClient
	channel string
}

// NewAnnouncements returns the channel of a namespace.
func NewAnnouncements(rdb redis.UniversalClient, namespace string) *Announcements {
	return &Announcements{rdb: rdb, channel: namespace + ":jobs-final"}
}

// Publish announces that jobs are final or have changed.
func (a *Announcements) Publish(ctx context.Context, ids []uuid.UUID) error {
	message := make([]byte, 0, len(ids)*len(uuid.UUID{}))
	for _, id := range ids {
		message = append(message, id[:]...)
	}
	return a.rdb.Publish(ctx, a.channel, message).Err()
}

// parseAnnouncement returns the ids of a message, or none when its length is wrong.
func parseAnnouncement(message string) []uuid.UUID {
	const size = len(uuid.UUID{})
	if len(message)%size != 0 {
		return nil
	}
	ids := make([]uuid.UUID, 0, len(message)/size)
	for ; len(message) > 0; message = message[size:] {
		ids = append(ids, uuid.UUID([]byte(message[:size])))
	}
	return ids
}
