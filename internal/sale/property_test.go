//go:build failpoint

package sale_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"triprize/internal/campaign"
	"triprize/internal/domain/money"
	"triprize/internal/drawing"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stripe"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/servers"
)

// Invariants, checked after every step of random, concurrent purchases, some of
// them paid by wallet or card, some of positions side by side, cancellations, expiries, steps of payments, conclusions,
// repeated deliveries, dying workers, draws, and now and then the end of the campaign
// or of its sale:
//
//   - everything package audit checks: a position has at most one owner, the
//     counters equal the rows, nobody is over the limit, a succeeded job has
//     exactly its purchase and a failed one none, what wallets paid and got back
//     is in the ledger once, payments and their purchases agree, a campaign is drawn
//     only when every position is sold, and the draw can be redone;
//   - a final job never changes again: not its state, not its result;
//   - after the end of a sale that is drawn then, nothing more is sold or reserved;
//   - sold shrinks by what was cancelled and by nothing else, and what a batch
//     reports as finalized is final.
//
// And at the end, when every job was delivered once more without a death, and every
// payment led to its end: every job is final, a campaign that is sold out, or drawn at its end, has one
// draw, and what the provider has captured has sold positions or one refund, and nothing else has.
func TestRandomInterleavingsKeepTheInvariants(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	cases := 0
	property.Check(t, func(rt *rapid.T) {
		if cases++; cases%25 == 0 { // every check reads the whole database
			db, clock = servers.DBWithClock(t)
		}
		m := newModel(t, rt, db, clock)
		for range rapid.IntRange(3, 12).Draw(rt, "steps") {
			var together sync.WaitGroup
			for _, op := range rapid.SliceOfN(rapid.SampledFrom(m.operations()), 1, 5).Draw(rt, "together") {
				do := op.prepare(rt)
				together.Go(do)
			}
			together.Wait()
			m.check(rt)
		}
		m.finish(rt)
	})
}

// model is one campaign and what is known of it.
type model struct {
	t      *testing.T
	db     *pgxpool.Pool
	id     uuid.UUID
	base   int
	seller *sale.Seller
	late   *sale.Seller // its reservations are over at once
	bank   *bank
	clock  *servers.Clock
	end    time.Duration // of the sale, by the clock; 0: it has none
	atEnd  int           // positions sold and reserved when the sale was seen to be over; -1: not yet

	mu    sync.Mutex
	jobs  []job.Ref // purchases
	backs []job.Ref // cancellations
	draws []job.Ref
	final map[uuid.UUID]string
	sold  int // ever, with what was cancelled
}

func newModel(t *testing.T, rt *rapid.T, db *pgxpool.Pool, clock *servers.Clock) *model {
	m := &model{t: t, db: db, base: rapid.IntRange(3, 5).Draw(rt, "base"), final: make(map[uuid.UUID]string),
		seller: fixture.Seller(db), late: sale.NewSeller(db, time.Hour, sale.Reservations{For: -time.Second, MaxExtension: time.Hour, Takes: stripe.Takes}), bank: newBank(), clock: clock, atEnd: -1}
	draft := fixture.Draft(m.base)
	if rapid.Bool().Draw(rt, "drawn at its end") {
		m.end = clock.Ahead() + shortSale
		draft = fixture.DrawnAtEnd(m.base, m.end)
	}
	draft.Policies.LatePayment = rapid.SampledFrom([]string{campaign.LatePaymentRefund, campaign.LatePaymentReassign}).Draw(rt, "late payment")
	if limit := rapid.IntRange(0, 4).Draw(rt, "limit"); limit > 0 {
		draft.PurchaseLimit = &limit
	}
	m.id = fixture.Campaign(t, db, draft)
	for user := range 3 { // and the fourth has no wallet
		fixture.Wallet(t, db, fmt.Sprintf("user-%d", 1+user), money.Amount(rapid.IntRange(0, 900).Draw(rt, "money")))
	}
	return m
}

// operation prepares one concurrent action: it draws what it needs and returns what is to be done.
type operation struct {
	name    string
	prepare func(rt *rapid.T) func()
}

func (o operation) String() string { return o.name }

func (m *model) operations() []operation {
	return []operation{
		{"order", m.order}, {"order", m.order}, {"deliver", m.deliver}, {"deliver", m.deliver}, {"deliver to a dying worker", m.deliverAndDie},
		{"time passes", m.timePasses}, {"end the sale", m.endSale}, {"expire", m.expire}, {"draw", m.draw}, {"end the campaign", m.endCampaign},
		{"lead", m.lead}, {"lead", m.lead}, {"lead", m.lead}, {"conclude", m.conclude}, {"conclude", m.conclude}, {"conclude and die", m.concludeAndDie},
		{"cancel", m.cancel}, {"cancel", m.cancel}, {"deliver cancellations", m.deliverBacks}, {"deliver cancellations to a dying worker", m.deliverBacksAndDie},
	}
}

func (m *model) order(rt *rapid.T) func() {
	var requests []job.Request
	for range rapid.IntRange(1, 6).Draw(rt, "orders") {
		user := fmt.Sprintf("user-%d", rapid.IntRange(1, 4).Draw(rt, "user"))
		layer := rapid.IntRange(0, m.base).Draw(rt, "layer")
		request := rapid.SampledFrom([]func(testing.TB, uuid.UUID, string, int, int) job.Request{fixture.PurchaseRequest, fixture.WalletRequest, fixture.CardRequest, fixture.CardRequest}).Draw(rt, "paid")
		requests = append(requests, request(m.t, m.id, user, layer, rapid.IntRange(1, 3).Draw(rt, "quantity")))
	}
	return func() {
		accepted, _, err := job.Accept(m.t.Context(), m.db, requests)
		if err != nil {
			m.t.Error(err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, one := range accepted {
			if !errors.Is(one.Err, job.ErrClosed) { // the end of the campaign came first
				m.jobs = append(m.jobs, job.Ref{ID: one.Job.ID, CampaignID: m.id})
			}
		}
	}
}

// some returns jobs to be delivered, finalized ones among them: deliveries repeat.
func (m *model) some(rt *rapid.T) []job.Ref {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.jobs) == 0 {
		return nil
	}
	seed := rapid.Uint64().Draw(rt, "which")
	picked := make([]job.Ref, 0, len(m.jobs))
	for _, i := range rand.New(rand.NewPCG(seed, seed)).Perm(len(m.jobs))[:1+int(seed%uint64(len(m.jobs)))] {
		picked = append(picked, m.jobs[i])
	}
	return picked
}

func (m *model) deliver(rt *rapid.T) func() {
	refs, wait := m.some(rt), rapid.SampledFrom(allWaits).Draw(rt, "wait")
	seller := rapid.SampledFrom([]*sale.Seller{m.seller, m.late}).Draw(rt, "seller")
	return func() { m.sell(seller, refs, wait) }
}

func (m *model) sell(seller *sale.Seller, refs []job.Ref, wait sale.LockWait) {
	defer func() {
		if p := recover(); p != nil && p != errDies { //nolint:errorlint // the very value
			panic(p)
		}
	}()
	report, err := seller.Sell(m.t.Context(), refs, wait)
	m.after("sell", report, err)
}

// after notes what follows from a batch.
func (m *model) after(what string, report sale.Report, err error) {
	if err != nil {
		if !postgres.IsTransient(err) {
			m.t.Errorf("%s: %v", what, err)
		}
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range report.Messages {
		m.draws = append(m.draws, message.Jobs...)
	}
}

// errDies is how a worker dies: nothing after it runs, and its transaction is gone.
var errDies = errors.New("the worker dies")

// deliverAndDie delivers jobs to a worker that dies right before its commit, and
// so does every other one that has an order of the same user at that moment.
func (m *model) deliverAndDie(rt *rapid.T) func() {
	refs := m.some(rt)
	victim := fmt.Sprintf("user-%d", rapid.IntRange(1, 4).Draw(rt, "victim"))
	return func() {
		defer failpoint.Set("sale.commit", victim, func() { panic(errDies) })()
		m.sell(m.seller, refs, sale.WaitForCampaign)
	}
}

func (m *model) draw(*rapid.T) func() {
	return func() {
		m.mu.Lock()
		draws := m.draws
		m.mu.Unlock()
		drawer := drawing.NewDrawer(m.db, fixture.Key(m.t), config.Draw{Lease: time.Hour, Timeout: servers.Patience}, drawing.DrawerOptions{}, servers.Logger(m.t))
		for _, ref := range draws {
			_, _ = drawer.Run(m.t.Context(), ref) // busy, finalized: the checks tell what became of it
		}
	}
}

// shortSale is shorter than a reservation, so that some are open at the end.
const shortSale = 40 * time.Minute

// timePasses moves the clock on, one time out of six: to the end of the sale, or after it.
func (m *model) timePasses(rt *rapid.T) func() {
	really := rapid.IntRange(0, 5).Draw(rt, "really") == 0
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if really {
			m.clock.MoveOn(shortSale + time.Minute)
		}
	}
}

// endSale ends the sale, if it is over, as the sweep does.
func (m *model) endSale(*rapid.T) func() {
	return func() {
		end, err := m.seller.EndSale(m.t.Context(), m.id)
		m.after("end the sale", sale.Report{Messages: end.Messages}, err)
	}
}

// checkEnd checks that nothing was sold or reserved after the end.
func (m *model) checkEnd(rt *rapid.T, c campaign.Campaign) {
	if m.end == 0 || m.clock.Ahead() <= m.end {
		return
	}
	now := c.Counts.Sold + c.Counts.Reserved
	if m.atEnd >= 0 && now > m.atEnd {
		rt.Errorf("%d positions were sold or reserved after the end, now %d are", m.atEnd, now)
	}
	m.atEnd = now
}

func (m *model) check(rt *rapid.T) {
	violations, err := upkeep.Check(m.t.Context(), m.db, 3)
	if err != nil {
		rt.Fatal(err)
	}
	for _, v := range violations {
		rt.Errorf("broken: %s: %s", v.Invariant, v.Subject)
	}
	ids := make([]uuid.UUID, len(m.jobs)+len(m.backs))
	for i, ref := range slices.Concat(m.jobs, m.backs) {
		ids[i] = ref.ID
	}
	jobs, err := job.GetAll(m.t.Context(), m.db, ids)
	if err != nil || len(jobs) != len(ids) {
		rt.Fatalf("%d of %d jobs are there, %v", len(jobs), len(ids), err)
	}
	for _, j := range jobs {
		now := fmt.Sprint(j.State, string(j.Result), j.Problem)
		if before, known := m.final[j.ID]; known && before != now {
			rt.Errorf("job %s was final as %s and is now %s", j.ID, before, now)
		}
		if j.State.Final() {
			m.final[j.ID] = now
		}
	}
	c, err := campaign.Get(m.t.Context(), m.db, m.id)
	if err != nil {
		rt.Fatal(err)
	}
	m.checkEnd(rt, c)
	ever := c.Counts.Sold + m.givenBack(rt)
	if ever < m.sold {
		rt.Errorf("sold, with what was cancelled, fell from %d to %d", m.sold, ever)
	}
	m.sold = ever
}

// finish delivers every job once more, to a worker that lives.
func (m *model) finish(rt *rapid.T) {
	if len(m.jobs) > 0 {
		m.sell(m.seller, m.jobs, sale.WaitForCampaign)
	}
	m.finalizeBacks(m.backs, forAll)
	if m.end != 0 {
		m.clock.MoveOn(10 * shortSale)
	}
	m.endPayments(rt)
	m.endSale(rt)()
	m.draw(rt)()
	m.check(rt)
	m.balance(rt)
	if want := len(m.jobs) + len(m.backs); len(m.final) != want {
		rt.Errorf("%d of %d jobs are final", len(m.final), want)
	}
	c, err := campaign.Get(m.t.Context(), m.db, m.id)
	if err != nil {
		rt.Fatal(err)
	}
	if soldOut := c.Counts.Sold == c.Counts.Total; (soldOut || m.end != 0 && c.State != campaign.Cancelled) != (c.State == campaign.Completed) {
		rt.Errorf("%d of %d sold, and the campaign is %s", c.Counts.Sold, c.Counts.Total, c.State)
	}
}
