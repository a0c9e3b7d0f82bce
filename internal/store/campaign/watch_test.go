package campaign_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/testkit/fixture"
)

// limit is far more than anything here takes.
const limit = 30 * time.Second

// never is an interval that does not pass: what comes, comes without it.
const never = time.Hour

// counted counts what is sent to the database. While it is closed, a query that
// has been counted waits.
type counted struct {
	db   postgres.DB
	sent atomic.Int64
	gate sync.RWMutex
}

func (c *counted) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c.sent.Add(1)
	return c.db.Exec(ctx, sql, args...)
}

func (c *counted) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.sent.Add(1)
	return c.db.QueryRow(ctx, sql, args...)
}

func (c *counted) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c.sent.Add(int64(b.Len()))
	return c.db.SendBatch(ctx, b)
}

func (c *counted) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.sent.Add(1)
	c.gate.RLock()
	defer c.gate.RUnlock()
	return c.db.Query(ctx, sql, args...) //nolint:sqlclosecheck // who asked closes them
}

// more waits until n more queries were sent.
func (c *counted) more(t *testing.T, n int64) {
	t.Helper()
	c.reach(t, c.sent.Load()+n)
}

// reach waits until so many queries were sent in all.
func (c *counted) reach(t *testing.T, want int64) {
	t.Helper()
	for deadline := time.Now().Add(limit); c.sent.Load() < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d queries of %d were sent", c.sent.Load(), want)
		}
	}
}

// watching runs a Watch until the test ends.
func watching(t *testing.T, db *pgxpool.Pool, interval time.Duration, logger *slog.Logger) (*campaign.Watch, *counted) {
	t.Helper()
	queries := &counted{db: db}
	watch := campaign.NewWatch(queries, interval, logger)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { watch.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return watch, queries
}

func take(t *testing.T, s *campaign.Subscription) campaign.Snapshot {
	t.Helper()
	select {
	case snapshot := <-s.Snapshots():
		return snapshot
	case <-time.After(limit):
		t.Fatal("nothing was told")
		return campaign.Snapshot{}
	}
}

// takeUntil takes snapshots until one has so many positions sold.
func takeUntil(t *testing.T, s *campaign.Subscription, sold int) campaign.Snapshot {
	t.Helper()
	for {
		if snapshot := take(t, s); snapshot.Counts.Sold == sold {
			return snapshot
		}
	}
}

func nothing(t *testing.T, s *campaign.Subscription) {
	t.Helper()
	select {
	case snapshot := <-s.Snapshots():
		t.Errorf("told of %+v", snapshot)
	default:
	}
}

// drafts stores n pending campaigns.
func drafts(t *testing.T, db *pgxpool.Pool, n int) []uuid.UUID {
	t.Helper()
	ids := make([]uuid.UUID, n)
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		for i := range ids {
			ids[i] = uuid.New()
			if err := campaign.Create(t.Context(), tx, ids[i], fixture.Draft(3)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// setSold changes a counter as sales do; what the positions say does not matter here.
func setSold(t *testing.T, db *pgxpool.Pool, sold int, ids ...uuid.UUID) {
	t.Helper()
	if _, err := db.Exec(t.Context(), `UPDATE campaigns SET positions_sold = $2 WHERE id = ANY($1)`, ids, sold); err != nil {
		t.Fatal(err)
	}
}

func TestACrowdCostsOneQueryPerInterval(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	ids := drafts(t, db, 50)
	const interval = 20 * time.Millisecond
	watch, queries := watching(t, db, interval, fixture.Logger(t))
	began := time.Now()
	var crowd []*campaign.Subscription
	for i := range 2000 {
		crowd = append(crowd, watch.Subscribe(ids[i%len(ids)], ""))
	}
	if watch.Watching() != len(ids) {
		t.Errorf("%d campaigns are watched", watch.Watching())
	}
	for i, s := range crowd {
		if first := take(t, s); first.CampaignID != ids[i%len(ids)] || first.State != campaign.Pending || first.Counts != (campaign.Counts{Total: 6}) {
			t.Fatalf("the first snapshot is %+v", first)
		}
	}
	arrivals := queries.sent.Load() // the first queries may have been for few
	if most := int64(time.Since(began)/interval) + int64(len(ids)); arrivals > most {
		t.Errorf("%d queries for 2000 arrivals", arrivals)
	}
	began = time.Now()
	setSold(t, db, 1, ids...)
	for _, s := range crowd {
		if news := take(t, s); news.Counts != (campaign.Counts{Total: 6, Sold: 1}) {
			t.Fatalf("the change arrived as %+v", news)
		}
	}
	queries.more(t, 5)
	if sent, intervals := queries.sent.Load()-arrivals, int64(time.Since(began)/interval); sent > intervals+2 {
		t.Errorf("%d queries in %d intervals", sent, intervals)
	}
	for _, s := range crowd {
		nothing(t, s) // nothing has changed since
		s.Stop()
		s.Stop() // twice does no harm
	}
	if watch.Watching() != 0 {
		t.Errorf("%d campaigns are watched by nobody", watch.Watching())
	}
	rest := queries.sent.Load()
	time.Sleep(10 * interval)
	if sent := queries.sent.Load() - rest; sent > 1 { // one was on its way
		t.Errorf("%d queries for nobody", sent)
	}
}

func TestArrivalsShareAQuery(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	ids := drafts(t, db, 3)
	watch, queries := watching(t, db, never, fixture.Logger(t))
	queries.gate.Lock()
	first := watch.Subscribe(ids[0], "")
	queries.reach(t, 1)
	var crowd []*campaign.Subscription
	for i := range 1000 { // all while a query is under way, and none waits for it
		crowd = append(crowd, watch.Subscribe(ids[i%3], ""))
	}
	queries.gate.Unlock()
	for _, s := range append(crowd, first) {
		take(t, s)
	}
	if sent := queries.sent.Load(); sent > 2 {
		t.Errorf("%d queries", sent)
	}
	queries.gate.Lock() // what is known needs no query
	defer queries.gate.Unlock()
	if s := take(t, watch.Subscribe(ids[1], "")); s.CampaignID != ids[1] {
		t.Errorf("told of %+v", s)
	}
}

func TestAnOldSnapshotIsNotTheFirst(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := drafts(t, db, 1)[0]
	const interval = 50 * time.Millisecond
	watch, queries := watching(t, db, interval, fixture.Logger(t))
	take(t, watch.Subscribe(id, ""))
	queries.gate.Lock() // the database does not answer for a while
	queries.more(t, 1)
	setSold(t, db, 1, id)
	time.Sleep(3 * interval)
	late := watch.Subscribe(id, "")
	nothing(t, late)
	queries.gate.Unlock()
	if s := take(t, late); s.Counts.Sold != 1 {
		t.Errorf("first told of %+v", s)
	}
}

func TestASnapshotShowsWhatOneWatches(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	watch, _ := watching(t, db, 10*time.Millisecond, fixture.Logger(t))
	s := watch.Subscribe(id, "")
	expect := func(want campaign.Snapshot) {
		t.Helper()
		want.CampaignID = id
		got := take(t, s)
		want.Version, want.Board = got.Version, got.Board
		if got != want {
			t.Errorf("told of %+v, want %+v", got, want)
		}
		read, err := campaign.Get(t.Context(), db, id)
		if err != nil {
			t.Fatal(err)
		}
		if same := campaign.SnapshotOf(read); same != got {
			t.Errorf("read as %+v, told of %+v", same, got)
		}
	}
	expect(campaign.Snapshot{State: campaign.Active, Counts: campaign.Counts{Total: 6}})
	fixture.Reserve(t, db, id, "u", 2, time.Hour)
	expect(campaign.Snapshot{State: campaign.Active, Counts: campaign.Counts{Total: 6, Reserved: 2}})
	fixture.Sell(t, db, id, 1)
	expect(campaign.Snapshot{State: campaign.Active, Counts: campaign.Counts{Total: 6, Reserved: 2, Sold: 1}})
	for _, move := range []struct {
		to     func(context.Context, pgx.Tx, uuid.UUID) error
		paused bool
	}{{campaign.Pause, true}, {campaign.Resume, false}} {
		if err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error { return move.to(t.Context(), tx, id) }); err != nil {
			t.Fatal(err)
		}
		expect(campaign.Snapshot{State: campaign.Active, Paused: move.paused, Counts: campaign.Counts{Total: 6, Reserved: 2, Sold: 1}})
	}
}

func TestWhoKnowsTheVersionIsToldOfChangesOnly(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	ids := drafts(t, db, 2)
	elsewhere, _ := watching(t, db, never, fixture.Logger(t)) // another process
	known := take(t, elsewhere.Subscribe(ids[0], ""))
	other := take(t, elsewhere.Subscribe(ids[1], ""))
	if known.Version == "" || len(known.Version) > 16 || known.Version == other.Version {
		t.Errorf("the versions are %q and %q", known.Version, other.Version)
	}
	watch, queries := watching(t, db, 10*time.Millisecond, fixture.Logger(t))
	back := watch.Subscribe(ids[0], known.Version) // from a query
	queries.more(t, 3)
	again := watch.Subscribe(ids[0], known.Version) // from what is known here
	queries.more(t, 3)
	nothing(t, back)
	nothing(t, again)
	if s := take(t, watch.Subscribe(ids[0], other.Version)); s != known {
		t.Errorf("who knew something else was told of %+v", s)
	}
	setSold(t, db, 1, ids[0])
	for _, s := range []*campaign.Subscription{back, again} {
		if news := take(t, s); news.Counts.Sold != 1 || news.Version == known.Version {
			t.Errorf("first told of %+v", news)
		}
	}
}

func TestASlowReaderGetsTheNewestOnly(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := drafts(t, db, 1)[0]
	watch, queries := watching(t, db, 10*time.Millisecond, fixture.Logger(t))
	slow, fast := watch.Subscribe(id, ""), watch.Subscribe(id, "")
	for sold := range 6 {
		setSold(t, db, sold, id)
		takeUntil(t, fast, sold) // nobody is held up
	}
	queries.more(t, 2) // the round that told fast told slow too
	if s := take(t, slow); s.Counts.Sold != 5 {
		t.Errorf("told of %+v", s)
	}
	queries.more(t, 2)
	nothing(t, slow)

	// What was not taken is withdrawn when it is no news any more.
	setSold(t, db, 6, id)
	takeUntil(t, fast, 6)
	setSold(t, db, 5, id)
	takeUntil(t, fast, 5)
	queries.more(t, 2)
	nothing(t, slow)
	setSold(t, db, 4, id)
	if s := take(t, slow); s.Counts.Sold != 4 {
		t.Errorf("told of %+v", s)
	}
}

// records collects what is logged.
type records struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Write(p)
}

func (r *records) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.all.String(), text)
}

// shut closes a database to everybody, ends its sessions, and returns what opens it.
func shut(t *testing.T, address string) (open func()) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name := pgx.Identifier{strings.TrimPrefix(u.Path, "/")}
	u.Path = "/postgres"
	admin, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	exec := func(sql string, args ...any) {
		if _, err := admin.Exec(context.Background(), sql, args...); err != nil {
			t.Error(err)
		}
	}
	open = sync.OnceFunc(func() {
		exec(`ALTER DATABASE ` + name.Sanitize() + ` ALLOW_CONNECTIONS true`)
		_ = admin.Close(context.Background())
	})
	t.Cleanup(open)
	exec(`ALTER DATABASE ` + name.Sanitize() + ` ALLOW_CONNECTIONS false`)
	exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, name[0])
	return open
}

func TestStreamsGoOnWhenPostgresIsBack(t *testing.T) {
	t.Parallel()
	settings := fixture.Settings(t)
	db := fixture.Pool(t, settings)
	ids := drafts(t, db, 2)
	var log records
	watch, queries := watching(t, db, 10*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
	s := watch.Subscribe(ids[0], "")
	take(t, s)
	for outage := 1; outage <= 2; outage++ {
		open := shut(t, settings.Postgres.URL)
		queries.more(t, 5)
		arrived := watch.Subscribe(ids[1], "")
		queries.more(t, 5)
		nothing(t, s)
		if n := log.count("level=WARN"); n != outage {
			t.Errorf("%d warnings after %d outages", n, outage)
		}
		open()
		take(t, arrived) // who came meanwhile
		arrived.Stop()
		setSold(t, fixture.Pool(t, settings), outage, ids[0])
		if news := take(t, s); news.Counts.Sold != outage {
			t.Errorf("told of %+v", news)
		}
		if n := log.count("level=INFO"); n != outage {
			t.Errorf("%d ends of %d outages were logged", n, outage)
		}
	}
}

func TestACampaignThatDoesNotExistIsNoTrouble(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := drafts(t, db, 1)[0]
	watch, queries := watching(t, db, 10*time.Millisecond, fixture.Logger(t))
	nobody := watch.Subscribe(uuid.New(), "")
	take(t, watch.Subscribe(id, ""))
	queries.more(t, 2)
	nothing(t, nobody)
}

// Not parallel, so that nobody else's goroutines come and go.
func TestAWatchLeavesNothingBehind(t *testing.T) {
	db := fixture.DB(t)
	ids := drafts(t, db, 2)
	before := goleak.IgnoreCurrent()
	watch := campaign.NewWatch(db, time.Millisecond, fixture.Logger(t))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); watch.Run(ctx) }()
	var crowd sync.WaitGroup
	for i := range 100 {
		crowd.Go(func() {
			s := watch.Subscribe(ids[i%2], "")
			if i%3 > 0 { // the others leave without a word heard
				<-s.Snapshots()
			}
			s.Stop()
		})
	}
	crowd.Wait()
	if watch.Watching() != 0 {
		t.Errorf("%d campaigns are watched by nobody", watch.Watching())
	}
	kept := watch.Subscribe(ids[0], "") // not even one that nobody stopped
	take(t, kept)
	cancel()
	select {
	case <-over:
	case <-time.After(limit):
		t.Fatal("Run does not end")
	}
	goleak.VerifyNone(t, before)
}
