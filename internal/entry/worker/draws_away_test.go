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
	"triprize/internal/person"
	"triprize/internal/platform/config"
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

// bound publishes a campaign whose draw needs a beacon, with rounds that are far apart.
func bound(t *testing.T, db *pgxpool.Pool) uuid.UUID {
	t.Helper()
	chain, err := drandsim.NewChain(make([]byte, 32), time.Now().Add(-time.Hour), 10*time.Minute)
	servers.NoError(t, err)
	draft := fixture.Draft(3)
	draft.Policies.Beacon = true
	return fixture.CampaignOn(t, db, draft, &chain.Chain)
}

// running runs a worker that asks relays.
func running(t *testing.T, settings config.Settings, s *stuck) (w *Worker, stop func() error) {
	t.Helper()
	w = New(settings, servers.Pool(t, settings), servers.Redis(t, settings), fixture.Key(t), person.Stored{}, drawing.DrawerOptions{Beacon: s}, stripe.Takes, servers.Logger(t), prometheus.NewRegistry())
	return w, runs(t, w)
}

func TestRelaysThatHangLeaveSlotsForDrawsThatNeedNone(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	settings.Worker.Draws = 2
	s := &stuck{free: make(chan struct{})}
	w, stop := running(t, settings, s)
	for range 6 {
		w.dispatcher.Dispatch(soldOut(t, w, bound(t, w.db)).Task())
	}
	servers.Eventually(t, "a relay is asked", func() bool { open, _ := s.see(); return open > 0 })
	plain := fixture.Campaign(t, w.db, fixture.Draft(3))
	w.dispatcher.Dispatch(soldOut(t, w, plain).Task())
	servers.Eventually(t, "the plain campaign is drawn", func() bool {
		c, err := campaign.Get(t.Context(), w.db, plain)
		return err == nil && c.State == campaign.Completed
	})
	if open, most := s.see(); open != 1 || most != 1 {
		t.Errorf("%d questions are under way, once it were %d", open, most)
	}
	close(s.free)
	servers.NoError(t, stop())
}

func TestAWorkerThatShutsDownWaitsForNoAnswerOfADraw(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	s := &stuck{}
	w, stop := running(t, settings, s)
	id := bound(t, w.db)
	w.dispatcher.Dispatch(soldOut(t, w, id).Task())
	servers.Eventually(t, "a relay is asked", func() bool { open, _ := s.see(); return open > 0 })
	servers.NoError(t, stop())
	if _, ok, err := fixture.DrawWait(t.Context(), w.db, id); err != nil || !ok {
		t.Errorf("the draw is not put off for another worker: %v", err)
	}
	if waiting := servers.Value[int](t, w.db, `SELECT count(*) FROM jobs WHERE kind = $1 AND state = $2`, job.KindDraw, job.Queued); waiting != 1 {
		t.Errorf("%d draws wait", waiting)
	}
}
