package watch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
)

// Campaigns tells any number of clients of one process how campaigns stand. It costs
// one query per interval for all campaigns that somebody here watches, none when
// nobody does, and one more when campaigns come to be watched: whoever comes
// while a query is under way shares the next. Redis is not needed. While Postgres
// is away nothing is told, and everything that changed afterwards.
type Campaigns struct {
	db       postgres.DB
	interval time.Duration
	logger   *slog.Logger
	arrived  chan struct{} // somebody waits for a first snapshot
	away     bool          // the last query failed; Run's own

	mu      sync.Mutex
	watched map[uuid.UUID]*watched
}

// watched is a campaign with at least one subscription.
type watched struct {
	latest        campaign.Progress
	readAt        time.Time // zero: never
	subscriptions map[*Subscription]struct{}
}

// progressTimeout bounds one query.
const progressTimeout = 5 * time.Second

// NewCampaigns returns a Campaigns; Run must run for it to notice anything.
func NewCampaigns(db postgres.DB, interval time.Duration, logger *slog.Logger) *Campaigns {
	return &Campaigns{db: db, interval: interval, logger: logger, arrived: make(chan struct{}, 1), watched: make(map[uuid.UUID]*watched)}
}

// Subscription is an interest in one campaign. Stop it when done.
type Subscription struct {
	watch *Campaigns
	id    uuid.UUID
	news  chan campaign.Progress // one place: the newest, until it is taken

	// Of the watch, under its lock: the version put into news last, and the
	// version that the subscriber has for certain.
	put, got string
}

// Subscribe registers an interest in a campaign. The first snapshot comes at
// once: one that is at most two intervals old, or from a query made for it.
// seen is the version that the subscriber has already, if any: it is told nothing
// until the campaign stands otherwise. Of a campaign that does not exist nothing
// is ever told.
func (w *Campaigns) Subscribe(id uuid.UUID, seen string) *Subscription {
	s := &Subscription{watch: w, id: id, news: make(chan campaign.Progress, 1), put: seen, got: seen}
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
	default: // Run knows already
	}
	return s
}

func (w *Campaigns) isFresh(c *watched) bool {
	return !c.readAt.IsZero() && time.Since(c.readAt) < 2*w.interval
}

// Progress delivers a campaign.Progress whenever the campaign stands otherwise than in
// the last one taken. One that is not taken is replaced by the next, or withdrawn
// when the campaign stands again as the subscriber knows it.
func (s *Subscription) Progress() <-chan campaign.Progress { return s.news }

// Stop ends the interest; stopping twice does no harm.
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

// offer puts a snapshot where the subscriber finds it. It never waits: only the
// watch puts something there, and under its lock.
func (s *Subscription) offer(latest campaign.Progress) {
	select {
	case <-s.news: // not taken: what the subscriber has is what it had
	default:
		s.got = s.put
	}
	s.put = latest.Version
	if latest.Version != s.got {
		s.news <- latest
	}
}

// Watching returns how many campaigns are watched.
func (w *Campaigns) Watching() int { return len(w.ids(func(*watched) bool { return true })) }

// Run reads the watched campaigns until ctx ends. All queries are made here, one
// after the other, so that nobody is told something older than before.
func (w *Campaigns) Run(ctx context.Context) {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.arrived:
			w.read(ctx, w.ids(func(c *watched) bool { return !w.isFresh(c) }))
		case <-ticker.C:
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
	limited, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	list, err := campaign.ReadProgress(limited, w.db, ids)
	if err != nil {
		if !w.away && ctx.Err() == nil {
			w.away = true
			w.logger.Warn("watched campaigns cannot be read; trying again", "error", err)
		}
		return
	}
	if w.away {
		w.away = false
		w.logger.Info("watched campaigns are read again")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, latest := range list {
		c := w.watched[latest.CampaignID]
		if c == nil {
			continue // the last one has left in the meantime
		}
		c.latest, c.readAt = latest, began
		for s := range c.subscriptions {
			s.offer(latest)
		}
	}
}
