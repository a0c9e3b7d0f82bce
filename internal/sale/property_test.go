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
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/shape"
	"triprize/internal/drawing"
	"triprize/internal/entry/upkeep"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/config"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stripe"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/servers"
)

// Invariants, checked after every step of random, concurrent purchases, some of
// them paid by wallet or card, holds, which are bought, extended, released and swept, cancellations, expiries,
// steps of payments, settlements, repeated deliveries, dying workers, draws, and now and then the end of the
// campaign or of its sale:
//
//   - everything package audit checks: a position has at most one owner, the
//     counters equal the rows, nobody is over the limit, a succeeded job has
//     exactly its purchase and a failed one none, what wallets paid and got back
//     is in the ledger once, payments and their purchases agree, a campaign is drawn
//     only when every position is sold, and the draw can be redone;
//   - a final job never changes again: not its state, not its result;
//   - after the end of a sale that is drawn then, nothing more is sold or reserved;
//   - sold shrinks by what was cancelled and by nothing else, and what a batch
//     reports as completed is final.
//
// And at the end, when every job was delivered once more without a death, and every
// payment led to its end: nothing was a deadlock, every job is final, a campaign that is sold out, or drawn at its end, has one
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
	holder *inventory.Holds
	clock  *servers.Clock
	end    time.Duration // of the sale, by the clock; 0: it has none
	atEnd  int           // positions sold and reserved when the sale was seen to be over; -1: not yet

	mu    sync.Mutex
	jobs  []job.Ref // purchases
	backs []job.Ref // cancellations
	draws []job.Ref
	holds []inventory.Hold
	final map[uuid.UUID]string
	sold  int // ever, with what was cancelled
}

func newModel(t *testing.T, rt *rapid.T, db *pgxpool.Pool, clock *servers.Clock) *model {
	m := &model{t: t, db: db, base: rapid.IntRange(3, 5).Draw(rt, "base"), final: make(map[uuid.UUID]string),
		seller: fixture.Seller(db), late: sale.NewSeller(db, time.Hour, sale.Reservations{For: -time.Second, MaxExtension: time.Hour, Takes: stripe.Takes}), bank: newBank(), clock: clock, atEnd: -1,
		holder: fixture.Holds(t, db, nil, nil)}
	draft := fixture.Draft(m.base)
	if rapid.Bool().Draw(rt, "drawn at its end") {
		m.end = clock.Ahead() + shortSale
		draft = fixture.DrawnAtEnd(m.base, m.end)
	}
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
		{"order", m.order}, {"order", m.order}, {"hold", m.hold}, {"change a hold", m.changeHold}, {"deliver", m.deliver}, {"deliver", m.deliver}, {"deliver to a dying worker", m.deliverAndDie},
		{"time passes", m.timePasses}, {"end the sale", m.endSale}, {"expire", m.expire}, {"draw", m.draw}, {"end the campaign", m.endCampaign},
		{"lead", m.lead}, {"lead", m.lead}, {"lead", m.lead}, {"settle", m.settle}, {"settle", m.settle}, {"settle and die", m.settleAndDie},
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
	return func() { m.accept(requests...) }
}

func (m *model) accept(requests ...job.Request) {
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

func (m *model) hold(rt *rapid.T) func() {
	user := fmt.Sprintf("user-%d", rapid.IntRange(1, 4).Draw(rt, "user"))
	request := fixture.HoldAnyRequest(m.id, user, 0, rapid.IntRange(1, 3).Draw(rt, "quantity"))
	request.TTL = rapid.SampledFrom([]time.Duration{time.Millisecond, shortSale / 2, 2 * shortSale}).Draw(rt, "ttl")
	return func() {
		h, err := fixture.TryHold(m.t, m.holder, request)
		if m.mayRefuse("hold", err); err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.holds = append(m.holds, h)
		}
	}
}

// mayRefuse wants no error but a refusal.
func (m *model) mayRefuse(what string, err error) {
	if err != nil && fault.CodeOf(err) == fault.InternalError && !postgres.IsTransient(err) {
		m.t.Errorf("%s: %v", what, err)
	}
}

// changeHold buys one of the last holds, extends or releases it, or does what the sweep does.
func (m *model) changeHold(rt *rapid.T) func() {
	which, how := rapid.IntRange(0, 4).Draw(rt, "which"), rapid.SampledFrom([]string{"buy", "extend", "release", "sweep"}).Draw(rt, "how")
	return func() {
		m.mu.Lock()
		if len(m.holds) == 0 {
			m.mu.Unlock()
			return
		}
		h := m.holds[max(len(m.holds)-1-which, 0)]
		m.mu.Unlock()
		var err error
		switch how {
		case "buy":
			m.accept(fixture.HeldRequest(m.t, m.id, h.UserID, h.ID))
		case "extend":
			r := fixture.HoldRequest(m.id, h.UserID)
			r.Job.Kind = job.KindHoldExtend
			_, err = m.holder.Extend(m.t.Context(), r, h.ID)
		case "release":
			_, err = m.holder.Release(m.t.Context(), m.id, h.ID)
		default:
			_, _, err = inventory.ExpireHolds(m.t.Context(), m.db, m.id, 2)
		}
		m.mayRefuse(how, err)
	}
}

// some returns jobs to be delivered, completed ones among them: deliveries repeat.
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

func (m *model) sell(seller *sale.Seller, refs []job.Ref, wait job.LockWait) {
	defer mayDie()
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

// mayDie is deferred by what a worker does that may die.
func mayDie() {
	if p := recover(); p != nil && p != errDies { //nolint:errorlint // the very value
		panic(p)
	}
}

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
			_, _ = drawer.Run(m.t.Context(), ref) // busy, completed: the checks tell what became of it
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
		m.after("end the sale", sale.Report{BatchResult: job.BatchResult{Messages: end.Messages}}, err)
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
	m.completeCancellations(m.backs, forAll)
	if m.end != 0 {
		m.clock.MoveOn(10 * shortSale)
	}
	m.endPayments(rt)
	m.endSale(rt)()
	m.draw(rt)()
	m.check(rt)
	m.balance(rt)
	if n := servers.Value[int](m.t, m.db, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 0 {
		rt.Errorf("%d deadlocks", n)
	}
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

// allWaits are the ways in which a transaction may wait; each ends by itself.
var allWaits = []job.LockWait{job.SkipLocked, sale.WaitForCampaign, forAll}

// cancel asks to cancel some purchase, or a part of it, in any state; often one that is to
// be cancelled already.
func (m *model) cancel(rt *rapid.T) func() {
	which, times := rapid.IntRange(0, 9).Draw(rt, "which"), rapid.IntRange(1, 3).Draw(rt, "times")
	parts := rapid.SliceOfN(rapid.IntRange(0, 3), times, times).Draw(rt, "parts") // so many of its positions; 0: all
	return func() {
		rows, err := m.db.Query(m.t.Context(), `SELECT id FROM purchases WHERE campaign_id = $1 ORDER BY id`, m.id)
		if err != nil {
			m.t.Errorf("cancel: %v", err)
			return
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil || len(all) == 0 {
			return
		}
		p, err := purchase.Get(m.t.Context(), m.db, access.Everything(), all[which%len(all)])
		if err != nil {
			m.t.Errorf("cancel: %v", err)
			return
		}
		requests := make([]job.Request, times)
		for i, n := range parts {
			var positions []shape.Position
			for k := range min(n, len(p.Items)) {
				positions = append(positions, p.Items[(i+k)%len(p.Items)].Position)
			}
			requests[i] = fixture.CancelRequestOf(m.t, m.id, sale.Cancellation{PurchaseID: p.ID, Positions: positions, By: "app:test"})
		}
		refs := fixture.Accept(m.t, m.db, requests...)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.backs = append(m.backs, refs...)
	}
}

func (m *model) someBacks(rt *rapid.T) []job.Ref {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.backs) == 0 {
		return nil
	}
	from := rapid.IntRange(0, len(m.backs)-1).Draw(rt, "from")
	return append([]job.Ref(nil), m.backs[from:]...)
}

func (m *model) deliverBacks(rt *rapid.T) func() {
	refs, wait := m.someBacks(rt), rapid.SampledFrom(allWaits).Draw(rt, "wait")
	return func() { m.completeCancellations(refs, wait) }
}

// deliverBacksAndDie delivers cancellations to a worker that dies right before
// the commit of one that concerns the victim.
func (m *model) deliverBacksAndDie(rt *rapid.T) func() {
	refs := m.someBacks(rt)
	victim := fmt.Sprintf("user-%d", rapid.IntRange(1, 4).Draw(rt, "victim"))
	return func() {
		defer failpoint.Set("cancellation.commit", victim, func() { panic(errDies) })()
		m.completeCancellations(refs, forAll)
	}
}

// completeCancellations completes cancellations like a worker, until it dies.
func (m *model) completeCancellations(refs []job.Ref, wait job.LockWait) {
	defer mayDie()
	if _, err := m.seller.Cancel(m.t.Context(), refs, wait); err != nil && !postgres.IsTransient(err) {
		m.t.Errorf("cancel: %v", err)
	}
}

// givenBack counts the positions of cancelled purchases that had been completed, and cancelled parts.
func (m *model) givenBack(rt *rapid.T) (n int) {
	err := m.db.QueryRow(m.t.Context(), `
		SELECT (SELECT count(*) FROM purchases p JOIN purchase_items i ON i.purchase_id = p.id
		        WHERE p.campaign_id = $1 AND p.state IN ('cancelled', 'refunding') AND p.completed_at IS NOT NULL)
		     + (SELECT count(*) FROM purchases, jsonb_path_query(partial_cancellations, '$[*].positions[*]') WHERE campaign_id = $1)`, m.id).Scan(&n)
	if err != nil {
		rt.Fatal(err)
	}
	return n
}

// bank is the provider: the truth about intents, not what our rows say.
type bank struct {
	mu      sync.Mutex
	intents map[uuid.UUID]string // created, authorized, processing, captured or canceled
}

func newBank() *bank { return &bank{intents: make(map[uuid.UUID]string)} }

// confirm moves an intent unless it has ended: the bank takes no confirmation then.
func (b *bank) confirm(id uuid.UUID, to string) {
	if b.intents[id] != "canceled" && b.intents[id] != "captured" {
		b.intents[id] = to
	}
}

// next does the next thing about a payment as a worker would: it asks the bank, and says
// what is to be written. choice is what the bank and the buyer do.
func (b *bank) next(p *payment.Payment, choice int) (guard payment.Precondition, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := p.PurchaseID
	giveUp := func(why payment.Ending) { p.Phase, p.Ending = payment.Expiring, &why }
	switch {
	case p.Phase.BeforeCapture() && p.Over:
		giveUp(payment.Expired)
	case p.Phase == payment.Reserved:
		p.Phase, p.Attempt = payment.Creating, 1
	case p.Phase == payment.Creating:
		intent := "pi_" + id.String()
		p.Phase, p.IntentID, b.intents[id] = payment.Confirming, &intent, "created"
	case p.Phase == payment.CardDeclined && choice%2 == 0:
		giveUp(payment.Declined)
	case p.Phase == payment.Confirming, p.Phase == payment.Action, p.Phase == payment.CardDeclined:
		return b.confirmed(p, choice)
	case p.Phase == payment.Processing && choice%3 != 1:
		b.confirm(id, "authorized")
		p.Phase, guard = payment.Capturing, payment.BeforeDeadline
	case p.Phase == payment.Capturing:
		if b.confirm(id, "captured"); b.intents[id] == "canceled" {
			giveUp(payment.Expired)
			return guard, true
		}
		p.Phase, p.Received = payment.Captured, p.Amount
	case p.Phase == payment.Expiring, p.Phase == payment.Late:
		b.give(p, choice)
	case p.Phase == payment.Cancelled && p.IntentID != nil && choice%7 == 0: // no bank should do this
		b.intents[id] = "captured"
		p.Phase, p.Received = payment.Captured, p.Amount
	default:
		return guard, false
	}
	return guard, true
}

// confirmed is what becomes of a confirmation.
func (b *bank) confirmed(p *payment.Payment, choice int) (guard payment.Precondition, ok bool) {
	switch choice % 5 {
	case 0:
		p.Phase = payment.Action
	case 1:
		b.confirm(p.PurchaseID, "processing")
		p.Phase = payment.Processing
	case 2:
		p.Phase, p.DeclinedUntil, p.Decline = payment.CardDeclined, &p.Deadline, &payprovider.Decline{Code: "card_declined", DeclineCode: "insufficient_funds"}
	default:
		b.confirm(p.PurchaseID, "authorized")
		p.Phase, guard = payment.Capturing, payment.BeforeDeadline
	}
	return guard, true
}

// give cancels an intent, if the bank lets it.
func (b *bank) give(p *payment.Payment, choice int) {
	id := p.PurchaseID
	switch {
	case b.intents[id] == "captured", b.intents[id] == "processing" && choice%2 == 0:
		b.intents[id] = "captured"
		p.Phase, p.Received = payment.Captured, p.Amount
	case b.intents[id] == "processing" && p.Phase == payment.Expiring && !p.Uncancellable:
		p.Uncancellable = true
	default:
		b.intents[id] = "canceled"
		p.Phase = payment.Ended
	}
}

// lead does the next thing about some payment, final ones too.
func (m *model) lead(rt *rapid.T) func() {
	which, choice := rapid.IntRange(0, 9).Draw(rt, "which"), rapid.IntRange(0, 69).Draw(rt, "choice")
	return func() {
		all := m.payments(`true`)
		if len(all) > 0 {
			m.leadOne(all[which%len(all)], choice)
		}
	}
}

// payments returns the purchases with payments of which where is true.
func (m *model) payments(where string) []uuid.UUID {
	all, err := postgres.Collect(m.t.Context(), m.db, pgx.RowTo[uuid.UUID], `SELECT purchase_id FROM payments WHERE campaign_id = $1 AND `+where+` ORDER BY 1`, m.id)
	if err != nil {
		m.t.Errorf("payments: %v", err)
	}
	return all
}

func (m *model) leadOne(id uuid.UUID, choice int) {
	p := fixture.Payment(m.t, m.db, id)
	guard, ok := m.bank.next(&p, choice)
	if !ok || m.t.Failed() {
		return
	}
	if err := fixture.Lead(m.t, m.db, &p, guard); err != nil && !errors.Is(err, lease.ErrFenced) && !postgres.IsTransient(err) {
		m.t.Errorf("lead: %v", err)
	}
}

func (m *model) expire(*rapid.T) func() {
	return func() {
		if _, err := sale.ExpireReservations(m.t.Context(), m.db, 100); err != nil && !postgres.IsTransient(err) {
			m.t.Errorf("expire: %v", err)
		}
	}
}

func (m *model) settle(rt *rapid.T) func() {
	refs, wait := m.some(rt), rapid.SampledFrom(allWaits).Draw(rt, "wait")
	return func() {
		defer mayDie()
		report, err := m.seller.SettlePayments(m.t.Context(), refs, wait)
		m.after("settle", report, err)
	}
}

// settleAndDie settles payments in a worker that dies right before its commit.
func (m *model) settleAndDie(rt *rapid.T) func() {
	settle, victim := m.settle(rt), fmt.Sprintf("user-%d", rapid.IntRange(1, 4).Draw(rt, "victim"))
	return func() {
		defer failpoint.Set("settlement.commit", victim, func() { panic(errDies) })()
		settle()
	}
}

// endCampaign cancels the campaign, one time out of eight; what it has sold stays sold here.
func (m *model) endCampaign(rt *rapid.T) func() {
	really := rapid.IntRange(0, 7).Draw(rt, "really") == 0
	return func() {
		if !really {
			return
		}
		err := postgres.InTx(m.t.Context(), m.db, func(tx pgx.Tx) error {
			if err := campaign.Lock(m.t.Context(), tx, m.id); err != nil {
				return err
			}
			var held []*inventory.Hold
			var find, b pgx.Batch
			inventory.QueueFindActive(&find, m.id, inventory.AllHolds, &held)
			if err := tx.SendBatch(m.t.Context(), &find).Close(); err != nil {
				return err
			}
			changes := make(campaign.Changes)
			inventory.QueueRelease(&b, held, changes)
			changes.QueueBack(&b)
			b.Queue(`UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1 AND state = 'active'`, m.id)
			return tx.SendBatch(m.t.Context(), &b).Close()
		})
		if err != nil && !postgres.IsTransient(err) {
			m.t.Errorf("end the campaign: %v", err)
		}
	}
}

// endPayments leads every payment to its end.
func (m *model) endPayments(rt *rapid.T) {
	for round := 0; ; round++ {
		open := m.payments(`finished_at IS NULL`)
		if len(open) == 0 {
			return
		}
		if round == 20 || m.t.Failed() {
			rt.Fatalf("%d payments do not end", len(open))
		}
		for _, id := range open {
			m.leadOne(id, 3)
		}
		report, err := m.seller.SettlePayments(m.t.Context(), m.jobs, forAll)
		m.after("settle", report, err)
	}
}

// balance checks that the bank has captured what we have sold or give back, and no more.
func (m *model) balance(rt *rapid.T) {
	type row struct {
		ID               uuid.UUID
		Paid, Kept, Back money.Amount
	}
	rows, err := postgres.Collect(m.t.Context(), m.db, pgx.RowToStructByPos[row], `
		SELECT p.id, p.amount, CASE WHEN p.state = 'completed' THEN (SELECT sum(price) FROM purchase_items WHERE purchase_id = p.id) ELSE 0 END::bigint,
		       (SELECT coalesce(sum(amount), 0) FROM refunds r WHERE r.purchase_id = p.id)::bigint
		FROM purchases p WHERE p.campaign_id = $1 AND p.payment_method = 'card'`, m.id)
	if err != nil {
		rt.Fatal(err)
	}
	for _, r := range rows {
		captured := m.bank.intents[r.ID] == "captured"
		if captured && r.Kept+r.Back != r.Paid || !captured && r.Kept+r.Back != 0 {
			rt.Errorf("purchase %s: the bank says %q; paid %d, kept %d, refunds of %d", r.ID, m.bank.intents[r.ID], r.Paid, r.Kept, r.Back)
		}
	}
}
