package inventory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/upkeep"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// storm is everybody at once on two campaigns.
type storm struct {
	t         *testing.T
	db        *pgxpool.Pool
	services  []*inventory.Holds
	campaigns []uuid.UUID

	mu     sync.Mutex
	random *rand.Rand
	holds  []inventory.Hold
	jobs   []job.Ref // of purchases
	queue  []job.Ref // those that no worker has yet
	counts map[string]int
}

// Users who hold, extend, release, and buy chosen positions, random ones and from
// holds; workers that take jobs of both campaigns into one batch; and two sweeps.
// Each does its rounds as fast as it can.
func TestAStormOnTwoCampaignsNeverDeadlocksAndEndsSound(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	db := servers.Pool(t, settings)
	many := func(s *config.Holds) { s.MaxPerUser, s.MaxPositionsPerUser, s.CoolDown = 50, 200, time.Second }
	c := &storm{t: t, db: db, random: rand.New(rand.NewPCG(1, 2)), counts: make(map[string]int),
		services: []*inventory.Holds{fixture.Holds(t, db, open, many), fixture.Holds(t, db, nil, many)}}
	for range 2 {
		c.campaigns = append(c.campaigns, fixture.Campaign(t, db, fixture.Draft(20)))
	}
	sweeper := upkeep.New(settings, db, servers.Redis(t, settings), servers.Logger(t), upkeep.Options{})
	sweep := func() error {
		_, err := sweeper.Run(t.Context(), sweeper.Sweeps[0])
		return err
	}
	const rounds = 20
	var everybody sync.WaitGroup
	for kind, actors := range map[string]struct {
		n  int
		do func() error
	}{"hold": {5, c.hold}, "extend": {2, c.extend}, "release": {2, c.release}, "buy": {3, c.buy}, "sell": {3, c.sell}, "sweep": {2, sweep}} {
		for range actors.n {
			everybody.Go(func() {
				for range rounds {
					c.note(kind, actors.do())
				}
			})
		}
	}
	everybody.Wait()
	c.finish()
	t.Logf("%v", c.counts)
}

// note counts what was done; a refusal is an answer, any other error is not.
func (c *storm) note(kind string, err error) {
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
	c.t.Errorf("%s: %v", kind, err)
}

func (c *storm) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *storm) anyCampaign() uuid.UUID { return c.campaigns[c.below(len(c.campaigns))] }
func (c *storm) anyUser() string        { return fmt.Sprint("user-", c.below(8)) }

// anyHold returns one of the latest holds, over or not.
func (c *storm) anyHold() (h inventory.Hold, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.holds) == 0 {
		return h, false
	}
	return c.holds[len(c.holds)-1-c.random.IntN(min(len(c.holds), 20))], true
}

func (c *storm) hold() error {
	request := fixture.HoldAnyRequest(c.anyCampaign(), c.anyUser(), 0, 1+c.below(3))
	if c.below(2) == 0 {
		request.Quantity = 0
		for i := range 1 + c.below(3) {
			request.Positions = append(request.Positions, at(17+i, 1+c.below(6)))
		}
	}
	request.TTL = time.Duration(20+c.below(300)) * time.Millisecond
	made, err := fixture.TryHold(c.t, c.services[c.below(len(c.services))], request)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.holds = append(c.holds, made)
	}
	return err
}

func (c *storm) extend() error {
	h, ok := c.anyHold()
	if !ok {
		return nil
	}
	_, err := extendAt(c.t, c.services[1], h.ID, 200*time.Millisecond)
	return err
}

func (c *storm) release() error {
	h, ok := c.anyHold()
	if !ok {
		return nil
	}
	_, err := releaseAt(c.t, c.services[0], h.ID)
	return err
}

func (c *storm) buy() error {
	id, user := c.anyCampaign(), c.anyUser()
	request := fixture.PurchaseRequest(c.t, id, user, c.below(17), 1)
	switch h, ok := c.anyHold(); {
	case c.below(3) == 0:
		request = fixture.ChosenRequest(c.t, id, user, at(17, 1+c.below(6)), at(18, 1+c.below(6)))
	case ok && c.below(2) == 0:
		request = fixture.HeldRequest(c.t, h.CampaignID, h.UserID, h.ID)
	}
	accepted, _, err := job.Accept(c.t.Context(), c.db, []job.Request{request})
	if err != nil {
		return err
	}
	if errors.Is(accepted[0].Err, job.ErrClosed) {
		return nil
	}
	ref := job.Ref{ID: accepted[0].Job.ID, CampaignID: request.CampaignID}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs, c.queue = append(c.jobs, ref), append(c.queue, ref)
	return nil
}

// sell is a worker: what is busy goes back to the queue.
func (c *storm) sell() error {
	c.mu.Lock()
	batch := c.queue[:min(len(c.queue), 16)]
	c.queue = c.queue[len(batch):]
	c.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	report, err := fixture.Seller(c.db).Sell(c.t.Context(), batch, []sale.LockWait{sale.SkipLocked, sale.SkipLocked, sale.SkipLocked, sale.WaitForCampaign}[c.below(4)])
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return err
	}
	c.queue = append(c.queue, report.Busy...)
	c.counts["sold"] += report.Sold
	c.counts["used"] += report.HoldsUsed
	c.counts["reclaimed"] += report.HoldsReclaimed
	return nil
}

// finish delivers every job once more: those that nobody got to are final now.
func (c *storm) finish() {
	if _, err := fixture.Seller(c.db).Sell(c.t.Context(), c.jobs, sale.WaitForCampaign); err != nil {
		c.t.Fatal(err)
	}
	var open, bought, deadlocks int
	err := c.db.QueryRow(c.t.Context(), `
		SELECT count(*) FILTER (WHERE state NOT IN ('succeeded', 'failed')), count(*) FILTER (WHERE state = 'succeeded'),
		       (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())
		FROM jobs WHERE kind = 'purchase'`).Scan(&open, &bought, &deadlocks)
	if err != nil {
		c.t.Fatal(err)
	}
	if open > 0 || bought == 0 || deadlocks > 0 {
		c.t.Errorf("%d jobs are not final, %d have bought something, and there were %d deadlocks", open, bought, deadlocks)
	}
	fixture.Sound(c.t, c.db)
}
