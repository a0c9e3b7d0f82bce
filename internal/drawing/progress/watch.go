package progress

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
)

// Campaigns tells any number of clients of one process the progress of campaigns. It
// makes one query per interval for all campaigns with subscriptions, and one more when
// new subscriptions find no fresh snapshot. It does not need Redis. While Postgres is
// down it says nothing; afterwards it passes on what has changed.
type Campaigns struct {
	db       postgres.DB
	interval time.Duration
	timeout  time.Duration // of one query; tests set it
	logger   *slog.Logger
	arrived  chan struct{}    // a subscription waits for its first snapshot
	ticks    <-chan time.Time // nil: every interval; tests set it
	failing  bool             // the last query failed; only Run uses it

	mu      sync.Mutex
	watched map[uuid.UUID]*watched
}

// watched is a campaign with at least one subscription.
type watched struct {
	latest        Progress
	readAt        time.Time // zero: never
	changedAt     time.Time // after the query that found latest
	subscriptions map[*Subscription]struct{}
}

// progressTimeout bounds one query.
const progressTimeout = 5 * time.Second

// NewCampaigns returns a Campaigns; Run must run for it to notice anything.
func NewCampaigns(db postgres.DB, interval time.Duration, logger *slog.Logger) *Campaigns {
	return &Campaigns{db: db, interval: interval, timeout: progressTimeout, logger: logger, arrived: make(chan struct{}, 1), watched: make(map[uuid.UUID]*watched)}
}

// Subscription follows one campaign. Call Stop when done.
type Subscription struct {
	watch   *Campaigns
	id      uuid.UUID
	updates chan Progress // has room for one: the newest, until the subscriber takes it

	// Guarded by the lock of Campaigns: the version last put into updates, and the
	// version that the subscriber has certainly received.
	put, got string
}

// Subscribe starts to follow a campaign. The first snapshot comes at once: it is at most
// two intervals old, or read for this subscription. seen is the version that the
// subscriber has already, if any: it gets nothing until the version differs. It never
// gets anything about a campaign that does not exist.
func (w *Campaigns) Subscribe(id uuid.UUID, seen string) *Subscription {
	s := &Subscription{watch: w, id: id, updates: make(chan Progress, 1), put: seen, got: seen}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.watched[id]
	if c == nil {
		c = &watched{subscriptions: make(map[*Subscription]struct{})}
		w.watched[id] = c
	}
	c.subscriptions[s] = struct{}{}
	if w.isFresh(c) {
		s.offer(c.latest)
		return s
	}
	select {
	case w.arrived <- struct{}{}:
	default: // Run has a signal already
	}
	return s
}

func (w *Campaigns) isFresh(c *watched) bool {
	return !c.readAt.IsZero() && time.Since(c.readAt) < 2*w.interval
}

// Progress delivers a Progress whenever the campaign differs from the last one
// taken. A newer one replaces one that is not taken yet. When the campaign returns to
// what the subscriber has, the one not taken is withdrawn.
func (s *Subscription) Progress() <-chan Progress { return s.updates }

// Stop ends the subscription; stopping twice is safe.
func (s *Subscription) Stop() {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	c := s.watch.watched[s.id]
	if c == nil {
		return
	}
	delete(c.subscriptions, s)
	if len(c.subscriptions) == 0 {
		delete(s.watch.watched, s.id)
	}
}

// offer puts a snapshot into updates. It never blocks, because only offer sends to updates,
// under the lock of Campaigns, after it has emptied it.
func (s *Subscription) offer(latest Progress) {
	select {
	case <-s.updates: // not taken: the subscriber has what it had before
	default:
		s.got = s.put
	}
	s.put = latest.Version
	if latest.Version != s.got {
		s.updates <- latest
	}
}

// ChangedAt returns when it was learned here that a campaign has changed: data read
// before then may be out of date. It is zero for a campaign that nobody follows.
func (w *Campaigns) ChangedAt(id uuid.UUID) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.watched[id]; c != nil {
		return c.changedAt
	}
	return time.Time{}
}

// Watching returns how many campaigns have subscriptions.
func (w *Campaigns) Watching() int { return len(w.ids(func(*watched) bool { return true })) }

// Run reads the campaigns with subscriptions until ctx ends. It makes all queries one
// after the other, so that no subscriber gets something older than before.
func (w *Campaigns) Run(ctx context.Context) {
	ticks := w.ticks
	if ticks == nil {
		ticker := time.NewTicker(w.interval)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.arrived:
			w.read(ctx, w.ids(func(c *watched) bool { return !w.isFresh(c) }))
		case <-ticks:
			w.read(ctx, w.ids(func(*watched) bool { return true }))
		}
	}
}

func (w *Campaigns) ids(which func(*watched) bool) []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(w.watched))
	for id, c := range w.watched {
		if which(c) {
			ids = append(ids, id)
		}
	}
	return ids
}

// read reads campaigns and offers them to their subscribers.
func (w *Campaigns) read(ctx context.Context, ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	list, err := Read(limited, w.db, ids)
	if err != nil {
		if !w.failing && ctx.Err() == nil {
			w.failing = true
			w.logger.Warn("watched campaigns cannot be read; trying again", "error", err)
		}
		return
	}
	if w.failing {
		w.failing = false
		w.logger.Info("watched campaigns are read again")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, latest := range list {
		c := w.watched[latest.CampaignID]
		if c == nil {
			continue // its last subscription has ended in the meantime
		}
		if latest.Version != c.latest.Version {
			c.changedAt = time.Now()
		}
		c.latest, c.readAt = latest, began
		for s := range c.subscriptions {
			s.offer(latest)
		}
	}
}
