package progress_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/drawing/progress"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

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

// watchingCampaigns watches campaigns until the test ends.
func watchingCampaigns(t *testing.T, db *pgxpool.Pool, interval time.Duration, logger *slog.Logger) (*progress.Campaigns, *counted) {
	t.Helper()
	queries := &counted{db: db}
	w := progress.NewCampaigns(queries, interval, logger)
	run(t, w)
	return w, queries
}

// run runs a watch until the test ends.
func run(t *testing.T, w *progress.Campaigns) {
	t.Helper()
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
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// setSold changes a counter as sales do; what the positions say does not matter here.
func setSold(t *testing.T, db *pgxpool.Pool, sold int, ids ...uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE campaigns SET positions_sold = $2 WHERE id = ANY($1)`, ids, sold)
}

func TestMain(m *testing.M) { servers.Main(m) }
