package progress_test

import (
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

	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/drawing/progress"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

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
	servers.Eventually(t, "enough queries were sent", func() bool { return c.sent.Load() >= want })
}

// watching watches campaigns until the test ends, at every tick or, without, at every interval.
func watching(t *testing.T, db *pgxpool.Pool, interval time.Duration, ticks <-chan time.Time) (*progress.Campaigns, *counted) {
	t.Helper()
	queries := &counted{db: db}
	w := progress.NewCampaigns(queries, interval, servers.Logger(t))
	if ticks != nil {
		w.SetTicks(ticks)
	}
	run(t, w)
	return w, queries
}

// run runs a watch until the test ends. No query is given up because a machine is slow: it would not come again, or be an outage.
func run(t *testing.T, w *progress.Campaigns) {
	t.Helper()
	w.SetTimeout(servers.Patience)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

func take(t *testing.T, s *progress.Subscription) progress.Progress {
	t.Helper()
	select {
	case progress := <-s.Progress():
		return progress
	case <-time.After(servers.Patience):
		t.Fatal("nothing was told")
		return progress.Progress{}
	}
}

// takeUntil takes snapshots until one has so many positions sold.
func takeUntil(t *testing.T, s *progress.Subscription, sold int) progress.Progress {
	t.Helper()
	for {
		if progress := take(t, s); progress.Counts.Sold == sold {
			return progress
		}
	}
}

func nothing(t *testing.T, s *progress.Subscription) {
	t.Helper()
	select {
	case progress := <-s.Progress():
		t.Errorf("told of %+v", progress)
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
	servers.NoError(t, err)
	return ids
}

// setSold changes a counter as sales do; what the positions say does not matter here.
func setSold(t *testing.T, db *pgxpool.Pool, sold int, ids ...uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE campaigns SET positions_sold = $2 WHERE id = ANY($1)`, ids, sold)
}

func TestACrowdCostsOneQueryPerInterval(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := drafts(t, db, 20)
	ticks := make(chan time.Time) // one tick is one interval
	w, queries := watching(t, db, never, ticks)
	var crowd []*progress.Subscription
	for i := range 500 {
		crowd = append(crowd, w.Subscribe(ids[i%len(ids)], ""))
	}
	if w.Watching() != len(ids) {
		t.Errorf("%d campaigns are watched", w.Watching())
	}
	for i, s := range crowd {
		if first := take(t, s); first.CampaignID != ids[i%len(ids)] || first.State != campaign.Pending || first.Counts != (campaign.Counts{Total: 6}) {
			t.Fatalf("the first progress is %+v", first)
		}
	}
	arrivals := queries.sent.Load()
	if arrivals > int64(len(ids)) { // the first ones may have been for few campaigns
		t.Errorf("%d queries for 500 arrivals", arrivals)
	}
	setSold(t, db, 1, ids...)
	ticks <- time.Time{}
	for _, s := range crowd {
		if news := take(t, s); news.Counts != (campaign.Counts{Total: 6, Sold: 1}) {
			t.Fatalf("the change arrived as %+v", news)
		}
	}
	ticks <- time.Time{}
	ticks <- time.Time{} // taken when the query of the one before is done
	for _, s := range crowd {
		nothing(t, s) // nothing has changed since
		s.Stop()
		s.Stop() // twice does no harm
	}
	if w.Watching() != 0 {
		t.Errorf("%d campaigns are watched by nobody", w.Watching())
	}
	ticks <- time.Time{}
	ticks <- time.Time{}
	if sent := queries.sent.Load() - arrivals; sent > 3 {
		t.Errorf("%d queries in three intervals, and two in which nobody watched", sent)
	}
}

func TestArrivalsShareAQuery(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := drafts(t, db, 3)
	w, queries := watching(t, db, never, nil)
	queries.gate.Lock()
	first := w.Subscribe(ids[0], "")
	queries.reach(t, 1)
	nobody := w.Subscribe(uuid.New(), "") // of no campaign
	var crowd []*progress.Subscription
	for i := range 300 { // all while a query is under way, and none waits for it
		crowd = append(crowd, w.Subscribe(ids[i%3], ""))
	}
	queries.gate.Unlock()
	for _, s := range append(crowd, first) {
		take(t, s)
	}
	if sent := queries.sent.Load(); sent > 2 {
		t.Errorf("%d queries", sent)
	}
	nothing(t, nobody)
	queries.gate.Lock() // what is known needs no query
	defer queries.gate.Unlock()
	if s := take(t, w.Subscribe(ids[1], "")); s.CampaignID != ids[1] {
		t.Errorf("told of %+v", s)
	}
}

func TestAnOldSnapshotIsNotTheFirst(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := drafts(t, db, 1)[0]
	const interval = 50 * time.Millisecond
	w, queries := watching(t, db, interval, make(chan time.Time)) // without a tick no query is under way, whose answer is old, too
	take(t, w.Subscribe(id, ""))
	queries.gate.Lock() // the database does not answer for a while
	setSold(t, db, 1, id)
	time.Sleep(3 * interval) // what is known is older than two intervals then
	late := w.Subscribe(id, "")
	nothing(t, late)
	queries.gate.Unlock()
	if s := take(t, late); s.Counts.Sold != 1 {
		t.Errorf("first told of %+v", s)
	}
}

func TestASnapshotShowsTheCampaign(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	w, _ := watching(t, db, 10*time.Millisecond, nil)
	s := w.Subscribe(id, "")
	expect := func(want progress.Progress) {
		t.Helper()
		want.CampaignID = id
		got := take(t, s)
		want.Version, want.Board = got.Version, got.Board
		if got != want {
			t.Errorf("told of %+v, want %+v", got, want)
		}
		read, err := campaign.Get(t.Context(), db, id)
		servers.NoError(t, err)
		if same, err := progress.Of(t.Context(), db, read); err != nil || same[0] != got {
			t.Errorf("read as %+v, told of %+v; %v", same, got, err)
		}
	}
	expect(progress.Progress{State: campaign.Active, Counts: campaign.Counts{Total: 6}})
	fixture.Reserve(t, db, id, "u", 2, time.Hour)
	expect(progress.Progress{State: campaign.Active, Counts: campaign.Counts{Total: 6, Reserved: 2}})
	fixture.Sell(t, db, id, 1)
	expect(progress.Progress{State: campaign.Active, Counts: campaign.Counts{Total: 6, Reserved: 2, Sold: 1}})
	for _, move := range []struct {
		to     func(context.Context, pgx.Tx, uuid.UUID) error
		paused bool
	}{{campaign.Pause, true}, {campaign.Resume, false}} {
		servers.NoError(t, postgres.InTx(t.Context(), db, func(tx pgx.Tx) error { return move.to(t.Context(), tx, id) }))
		expect(progress.Progress{State: campaign.Active, Paused: move.paused, Counts: campaign.Counts{Total: 6, Reserved: 2, Sold: 1}})
	}
}

func TestASubscriberThatKnowsTheVersionIsToldOfChangesOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := drafts(t, db, 2)
	elsewhere, _ := watching(t, db, never, nil) // another process
	known := take(t, elsewhere.Subscribe(ids[0], ""))
	other := take(t, elsewhere.Subscribe(ids[1], ""))
	if known.Version == "" || len(known.Version) > 16 || known.Version == other.Version {
		t.Errorf("the versions are %q and %q", known.Version, other.Version)
	}
	w, queries := watching(t, db, 10*time.Millisecond, nil)
	back := w.Subscribe(ids[0], known.Version) // from a query
	queries.more(t, 3)
	again := w.Subscribe(ids[0], known.Version) // from what is known here
	queries.more(t, 3)
	nothing(t, back)
	nothing(t, again)
	if s := take(t, w.Subscribe(ids[0], other.Version)); s != known {
		t.Errorf("one that knew something else was told of %+v", s)
	}
	setSold(t, db, 1, ids[0])
	for _, s := range []*progress.Subscription{back, again} {
		if news := take(t, s); news.Counts.Sold != 1 || news.Version == known.Version {
			t.Errorf("first told of %+v", news)
		}
	}
}

func TestASlowReaderGetsTheNewestOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := drafts(t, db, 1)[0]
	w, queries := watching(t, db, 10*time.Millisecond, nil)
	slow, fast := w.Subscribe(id, ""), w.Subscribe(id, "")
	for sold := range 6 {
		setSold(t, db, sold, id)
		takeUntil(t, fast, sold) // the slow one holds up nobody
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

// shut closes a database to everybody, ends its sessions, and returns what opens it.
func shut(t *testing.T, address string) (open func()) {
	t.Helper()
	u, err := url.Parse(address)
	servers.NoError(t, err)
	name := pgx.Identifier{strings.TrimPrefix(u.Path, "/")}
	u.Path = "/postgres"
	admin, err := pgx.Connect(t.Context(), u.String())
	servers.NoError(t, err)
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
	settings := servers.Patient(servers.Settings(t))
	db := servers.Pool(t, settings)
	ids := drafts(t, db, 2)
	var log servers.Journal
	queries := &counted{db: db}
	w := progress.NewCampaigns(queries, 10*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
	run(t, w)
	s := w.Subscribe(ids[0], "")
	take(t, s)
	for outage := 1; outage <= 2; outage++ {
		open := shut(t, settings.Postgres.URL)
		queries.more(t, 5)
		arrived := w.Subscribe(ids[1], "")
		queries.more(t, 5)
		nothing(t, s)
		if n := strings.Count(log.String(), "level=WARN"); n != outage {
			t.Errorf("%d warnings after %d outages", n, outage)
		}
		open()
		take(t, arrived) // it came meanwhile
		arrived.Stop()
		setSold(t, servers.Pool(t, settings), outage, ids[0])
		if news := take(t, s); news.Counts.Sold != outage {
			t.Errorf("told of %+v", news)
		}
		if n := strings.Count(log.String(), "level=INFO"); n != outage {
			t.Errorf("%d ends of %d outages were logged", n, outage)
		}
	}
}

// Not parallel: the goroutines of other tests would be counted.
func TestAWatchLeavesNothingBehind(t *testing.T) {
	db := servers.DB(t)
	ids := drafts(t, db, 2)
	before := goleak.IgnoreCurrent()
	w := progress.NewCampaigns(db, time.Millisecond, servers.Logger(t))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); w.Run(ctx) }()
	var crowd sync.WaitGroup
	for i := range 100 {
		crowd.Go(func() {
			s := w.Subscribe(ids[i%2], "")
			if i%3 > 0 { // the others leave before they were told anything
				<-s.Progress()
			}
			s.Stop()
		})
	}
	crowd.Wait()
	if w.Watching() != 0 {
		t.Errorf("%d campaigns are watched by nobody", w.Watching())
	}
	kept := w.Subscribe(ids[0], "") // not even one that was not stopped
	take(t, kept)
	cancel()
	select {
	case <-over:
	case <-time.After(servers.Patience):
		t.Fatal("Run does not end")
	}
	servers.Eventually(t, "nothing is left", func() bool { return goleak.Find(before) == nil }) // the session of a query that was cut off ends a moment later
}

func TestAFollowerIsToldOfTheFreezeAndOfEveryWait(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	fixture.SellOut(t, db, id)
	until := time.Now().Add(time.Minute)
	wait := func(reason string, at time.Time) func(ctx context.Context, tx pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			return drawing.SetWait(ctx, tx, id, job.Blocked{Reason: reason, RetryAt: at})
		}
	}
	seen, draws := make(map[string]string), make(map[string]string)
	for _, c := range []struct {
		what    string
		do      func(ctx context.Context, tx pgx.Tx) error
		frozen  bool
		waiting string
	}{
		{"drawing", func(context.Context, pgx.Tx) error { return nil }, false, ""},
		{"a freeze that waits", wait("the clock is behind", until), false, "the clock is behind"},
		{"frozen", func(ctx context.Context, tx pgx.Tx) error {
			return drawing.InsertFreeze(ctx, tx, drawing.Freeze{CampaignID: id, Record: []byte("{}"), Root: fairdraw.Hash{1}, Count: 6, FrozenAt: time.Now()}, nil, nil)
		}, true, "the clock is behind"},
		{"waiting for the round", wait("the round is not due", until), true, "the round is not due"},
		{"waiting for longer", wait("the round is not due", until.Add(time.Second)), true, "the round is not due"},
		{"going on", func(ctx context.Context, tx pgx.Tx) error { return drawing.EndWait(ctx, tx, id) }, true, ""},
	} {
		servers.NoError(t, postgres.InTx(t.Context(), db, func(tx pgx.Tx) error { return c.do(t.Context(), tx) }))
		list, err := progress.Read(t.Context(), db, []uuid.UUID{id})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		p := list[0]
		if seen[p.Version] != "" || draws[p.DrawVersion()] != "" {
			t.Errorf("%s is told as %q, and to the followers of the draw as %q", c.what, seen[p.Version], draws[p.DrawVersion()])
		}
		seen[p.Version], draws[p.DrawVersion()] = c.what, c.what
		if (p.Draw != nil) != c.frozen || c.frozen && *p.Draw.FreezeHash != fairdraw.FreezeHash([]byte("{}")) || (p.Waiting != nil) != (c.waiting != "") || p.Waiting != nil && p.Waiting.Reason != c.waiting {
			t.Errorf("%s: %+v, %+v", c.what, p.Draw, p.Waiting)
		}
		p.Counts.Sold--
		p.Board--
		if draws[p.DrawVersion()] != c.what {
			t.Error("a sale is told to the followers of the draw")
		}
	}
}
