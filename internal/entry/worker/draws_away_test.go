package worker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize.example/draw/beacon"
	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

// stuck are relays that say nothing until free is closed, or, without it, until they are
// not asked any more.
type stuck struct {
	free chan struct{}

	mu         sync.Mutex
	open, most int
}

func (s *stuck) Latest(ctx context.Context, _ beacon.Chain) (beacon.Round, error) {
	s.mu.Lock()
	s.open++
	s.most = max(s.most, s.open)
	s.mu.Unlock()
	if s.free != nil {
		<-s.free
	} else {
		<-ctx.Done()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	return beacon.Round{}, context.DeadlineExceeded
}

func (s *stuck) Round(ctx context.Context, c beacon.Chain, _ uint64) (beacon.Round, error) {
	return s.Latest(ctx, c)
}

func (s *stuck) see() (open, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.most
}

// soldOut returns the message of an order that sells a campaign out.
func soldOut(t *testing.T, w *Worker, id uuid.UUID) job.Message {
	t.Helper()
	return order(t, w, id, "a", "b", "c", "d", "e", "f")
}

// longRounds returns a chain with rounds that are far apart.
func longRounds(t *testing.T) *drandsim.Chain {
	t.Helper()
	chain, err := drandsim.NewChain(make([]byte, 32), time.Now().Add(-time.Hour), 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// bound publishes a campaign whose draw needs a beacon.
func bound(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain) uuid.UUID {
	t.Helper()
	draft := fixture.Draft(3)
	draft.Policies.Beacon = true
	return fixture.CampaignOn(t, db, draft, &chain.Chain)
}

// running runs a worker until stop is called.
func running(t *testing.T, settings config.Settings, options drawing.DrawerOptions) (w *Worker, client *queue.Client, stop func() error) {
	t.Helper()
	w = New(settings, servers.Pool(t, settings), servers.Redis(t, settings), fixture.Key(t), options, stripe.Takes, servers.Logger(t), prometheus.NewRegistry())
	ctx, tell := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return w, queue.NewClient(servers.Redis(t, settings), settings.Redis.Namespace), func() error {
		tell()
		return <-ended
	}
}

func TestRelaysThatHangLeaveSlotsForDrawsThatNeedNone(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	settings.Worker.Draws = 2
	s := &stuck{free: make(chan struct{})}
	w, client, stop := running(t, settings, drawing.DrawerOptions{Beacon: s})
	for range 6 {
		if err := client.Enqueue(t.Context(), soldOut(t, w, bound(t, w.db, longRounds(t))).Task()); err != nil {
			t.Fatal(err)
		}
	}
	servers.Eventually(t, "a relay is asked", func() bool { open, _ := s.see(); return open > 0 })
	plain := fixture.Campaign(t, w.db, fixture.Draft(3))
	if err := client.Enqueue(t.Context(), soldOut(t, w, plain).Task()); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the plain campaign is drawn", func() bool {
		c, err := campaign.Get(t.Context(), w.db, plain)
		return err == nil && c.State == campaign.Completed
	})
	if open, most := s.see(); open != 1 || most != 1 {
		t.Errorf("%d questions are under way, once it were %d", open, most)
	}
	close(s.free)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAWorkerThatShutsDownWaitsForNoAnswerOfADraw(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	settings.Draw.Timeout = time.Hour // no question ends by itself
	s := &stuck{}
	w, client, stop := running(t, settings, drawing.DrawerOptions{Beacon: s})
	id := bound(t, w.db, longRounds(t))
	message := soldOut(t, w, id)
	if err := client.Enqueue(t.Context(), message.Task()); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "a relay is asked", func() bool { open, _ := s.see(); return open > 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, ok, err := fixture.DrawWait(t.Context(), w.db, id); err != nil || !ok {
		t.Errorf("the draw is not put off for another worker: %v", err)
	}
	var waiting int
	if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE kind = $1 AND state = $2`, job.KindDraw, job.Queued).Scan(&waiting); err != nil || waiting != 1 {
		t.Errorf("%d draws wait, %v", waiting, err)
	}
}
