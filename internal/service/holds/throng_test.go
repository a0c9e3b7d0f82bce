package holds_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/maintenance/recovery"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/holds"
	"triprize/internal/service/sale"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
	"triprize/internal/testkit/fixture"
)

// throng is everybody at once on two campaigns.
type throng struct {
	t         *testing.T
	db        *pgxpool.Pool
	desks     []*holds.Service
	campaigns []uuid.UUID
	over      context.Context

	mu     sync.Mutex
	holds  []inventory.Hold
	jobs   []job.Ref // of purchases
	queue  []job.Ref // those that no worker has yet
	counts map[string]int
}

// Holders, extenders, releasers, buyers of chosen and random positions and from
// holds, workers that take jobs of both campaigns into one batch, and two sweeps.
func TestAThrongOnTwoCampaignsNeverDeadlocksAndEndsSound(t *testing.T) {
	t.Parallel()
	settings := fixture.Settings(t)
	db := fixture.Pool(t, settings)
	over, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	many := func(s *config.Holds) { s.MaxPerUser, s.MaxPositionsPerUser, s.CoolDown = 50, 200, time.Second }
	c := &throng{t: t, db: db, over: over, counts: make(map[string]int), desks: []*holds.Service{fixture.Holds(t, db, open, many), fixture.Holds(t, db, nil, many)}}
	for range 2 {
		c.campaigns = append(c.campaigns, fixture.Campaign(t, db, fixture.Draft(24)))
	}
	var everybody sync.WaitGroup
	for kind, actors := range map[string]struct {
		n  int
		do func() error
	}{"hold": {6, c.hold}, "extend": {2, c.extend}, "release": {2, c.release}, "buy": {3, c.buy}, "sell": {3, c.sell}} {
		for range actors.n {
			everybody.Go(func() {
				for over.Err() == nil {
					c.note(kind, actors.do())
				}
			})
		}
	}
	for range 2 {
		sweeper := recovery.New(settings, db, fixture.Redis(t, settings), nil, fixture.Logger(t))
		everybody.Go(func() {
			for over.Err() == nil {
				report, err := sweeper.Run(t.Context(), sweeper.Sweeps()[0])
				c.note("sweep", err)
				c.mu.Lock()
				c.counts["swept"] += report.Counts["expired"]
				c.mu.Unlock()
			}
		})
	}
	everybody.Wait()
	c.finish()
	t.Logf("%v", c.counts)
}

// note counts what somebody did; a refusal is an answer, anything else is not.
func (c *throng) note(kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[kind]++
	if err == nil {
		return
	}
	if code := fault.CodeOf(err); code != fault.InternalError {
		c.counts[string(code)]++
		return
	}
	c.counts["error"]++
	if !postgres.IsTransient(err) {
		c.t.Errorf("%s: %v", kind, err)
	}
}

func (c *throng) anyCampaign() uuid.UUID { return c.campaigns[rand.IntN(len(c.campaigns))] }
func (c *throng) anyUser() string        { return fmt.Sprint("user-", rand.IntN(8)) }

// anyHold returns one of the latest holds, over or not.
func (c *throng) anyHold() (h inventory.Hold, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.holds) == 0 {
		return h, false
	}
	return c.holds[len(c.holds)-1-rand.IntN(min(len(c.holds), 20))], true
}

func (c *throng) hold() error {
	ask := fixture.HoldAnyRequest(c.anyCampaign(), c.anyUser(), 0, 1+rand.IntN(3))
	if rand.IntN(2) == 0 {
		ask.Quantity = 0
		for i := range 1 + rand.IntN(3) {
			ask.Positions = append(ask.Positions, at(21+i, 1+rand.IntN(6)))
		}
	}
	ask.TTL = time.Duration(20+rand.IntN(300)) * time.Millisecond
	made, err := fixture.TryHold(c.t, c.desks[rand.IntN(len(c.desks))], ask)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.holds = append(c.holds, made)
	}
	return err
}

func (c *throng) extend() error {
	time.Sleep(2 * time.Millisecond)
	h, ok := c.anyHold()
	if !ok {
		return nil
	}
	_, err := extend(c.t, c.db, h.ID, 200*time.Millisecond, 1)
	return err
}

func (c *throng) release() error {
	time.Sleep(5 * time.Millisecond)
	h, ok := c.anyHold()
	if !ok {
		return nil
	}
	_, err := c.desks[0].Release(c.t.Context(), h.ID)
	return err
}

func (c *throng) buy() error {
	id, user := c.anyCampaign(), c.anyUser()
	request := fixture.PurchaseRequest(c.t, id, user, rand.IntN(20), 1)
	switch h, ok := c.anyHold(); {
	case rand.IntN(3) == 0:
		request = fixture.ChosenRequest(c.t, id, user, at(21, 1+rand.IntN(6)), at(22, 1+rand.IntN(6)))
	case ok && rand.IntN(2) == 0:
		request = fixture.HeldRequest(c.t, h.CampaignID, h.UserID, h.ID)
	}
	accepted, _, err := outbox.Accept(c.t.Context(), c.db, []job.Request{request})
	if err != nil {
		return err
	}
	ref := job.Ref{ID: accepted[0].Job.ID, CampaignID: request.CampaignID}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs, c.queue = append(c.jobs, ref), append(c.queue, ref)
	return nil
}

// sell is a worker: what is busy, or failed, it takes again.
func (c *throng) sell() error {
	c.mu.Lock()
	batch := c.queue[:min(len(c.queue), 16)]
	c.queue = c.queue[len(batch):]
	c.mu.Unlock()
	if len(batch) == 0 {
		time.Sleep(time.Millisecond)
		return nil
	}
	report, err := seller(c.db).Sell(c.t.Context(), batch, []sale.Wait{sale.SkipLocked, sale.SkipLocked, sale.SkipLocked, sale.WaitForCampaign}[rand.IntN(4)])
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.queue = append(c.queue, batch...)
		return err
	}
	c.queue = append(c.queue, report.Busy...)
	c.counts["sold"] += report.Sold
	c.counts["used"] += report.HoldsUsed
	c.counts["reclaimed"] += report.HoldsReclaimed
	return nil
}

func (c *throng) finish() {
	if _, err := seller(c.db).Sell(c.t.Context(), c.jobs, sale.WaitForCampaign); err != nil {
		c.t.Fatal(err)
	}
	var open, deadlocks int
	if err := c.db.QueryRow(c.t.Context(), `SELECT count(*) FROM jobs WHERE kind <> 'draw' AND state NOT IN ('succeeded', 'failed')`).Scan(&open); err != nil {
		c.t.Fatal(err)
	}
	if err := c.db.QueryRow(c.t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks); err != nil {
		c.t.Fatal(err)
	}
	if open > 0 || deadlocks > 0 {
		c.t.Errorf("%d jobs are not final, and there were %d deadlocks", open, deadlocks)
	}
	for _, what := range []string{"sold", "extend", "release", "sweep"} {
		if c.counts[what] == 0 {
			c.t.Errorf("nothing was %s", what)
		}
	}
	fixture.Sound(c.t, c.db)
}
