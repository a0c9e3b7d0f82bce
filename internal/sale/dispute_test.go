//go:build failpoint

package sale_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/provider"
	"triprize/internal/testkit/servers"
)

// court is a campaign whose buyers pay by card and dispute it.
type court struct {
	t  *testing.T
	db *pgxpool.Pool
	id uuid.UUID
}

func newCourt(t *testing.T, policy string) court {
	t.Helper()
	draft := fixture.Draft(4)
	draft.Policies.Disputes = policy
	db := servers.DB(t)
	return court{t, db, fixture.Campaign(t, db, draft)}
}

// buy buys two positions for 800 by card.
func (c court) buy(user string) uuid.UUID {
	c.t.Helper()
	bought, _ := fixture.BuyByCard(c.t, c.db, c.id, user, 4, 2)
	return bought
}

// hear lets a worker ask the provider for the disputes of a purchase, which are these.
func (c court) hear(bought uuid.UUID, disputes ...payprovider.Dispute) cards.Result {
	c.t.Helper()
	bank := provider.New()
	bank.Disputes = disputes
	runner := cards.NewRunner(c.db, bank, cards.Settings{Lease: time.Hour, CallTimeout: servers.Patience, Recheck: time.Hour, Release: fixture.Seller(c.db).Release},
		servers.Logger(c.t), prometheus.NewRegistry())
	setPayment(c.t, c.db, bought, `due_at = clock_timestamp(), lease_until = NULL`)
	p := fixture.Payment(c.t, c.db, bought)
	result, err := runner.Run(context.Background(), p.Ref().Item())
	servers.NoError(c.t, err)
	return result
}

// over is a dispute of so much with a status.
func over(amount money.Amount, status string) payprovider.Dispute {
	return payprovider.Dispute{ID: "du_1", Status: status, Reason: "fraudulent", Lost: status == "lost", Refundable: status == "won",
		Disputed: payprovider.Disputed{Amount: amount, Currency: "JPY", Fee: 1500, FeeCurrency: "JPY"}}
}

// releases returns the jobs that the system has made to cancel purchases.
func (c court) releases() (refs []job.Ref) {
	c.t.Helper()
	ids := servers.Value[[]uuid.UUID](c.t, c.db, `SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM jobs WHERE kind = 'cancellation' AND client = 'system'`)
	for _, id := range ids {
		refs = append(refs, job.Ref{ID: id, CampaignID: c.id})
	}
	return refs
}

func (c court) byHand(bought uuid.UUID, amount money.Amount, state string) {
	c.t.Helper()
	servers.Exec(c.t, c.db, `INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, state, provider_id)
		SELECT gen_random_uuid(), id, campaign_id, user_id, 'card', $2, currency, 'out-of-band', 'pending', 're_hand' FROM purchases WHERE id = $1`, bought, int64(amount))
	servers.Exec(c.t, c.db, `UPDATE refunds SET state = $2, finished_at = clock_timestamp() WHERE provider_id = 're_hand' AND purchase_id = $1`, bought, state)
}

func TestALostDisputeFreesPositionsOnlyWithThePolicyAndWhenNothingIsLeftOfTheMoney(t *testing.T) {
	t.Parallel()
	part := func(c court, bought uuid.UUID) {
		p := purchaseOf(t, c.db, bought)
		cancel(t, c.db, partOf(t, c.id, bought, p.Items[0].Position))
	}
	hand := func(amount money.Amount, state string) func(court, uuid.UUID) {
		return func(c court, bought uuid.UUID) { c.byHand(bought, amount, state) }
	}
	in := func(set string) func(court, uuid.UUID) {
		return func(c court, _ uuid.UUID) { servers.Exec(t, c.db, `UPDATE campaigns SET `+set+` WHERE id = $1`, c.id) }
	}
	for name, a := range map[string]struct {
		policy   string
		before   func(court, uuid.UUID)
		lost     money.Amount
		status   string
		released bool
	}{
		"keep":                              {"keep", nil, 800, "lost", false},
		"by default":                        {"", nil, 800, "lost", false},
		"release":                           {"release", nil, 800, "lost", true},
		"not decided":                       {"release", nil, 800, "needs_response", false},
		"won":                               {"release", nil, 800, "won", false},
		"a part of the money":               {"release", nil, 799, "lost", false},
		"the rest was refunded by hand":     {"release", hand(300, "succeeded"), 500, "lost", true},
		"what was refunded came back":       {"release", hand(300, "failed"), 500, "lost", false},
		"the rest, after a cancelled part":  {"release", part, 400, "lost", true},
		"all, after a cancelled part":       {"release", part, 800, "lost", true},
		"less, after a cancelled part":      {"release", part, 399, "lost", false},
		"while the sale is paused":          {"release", in(`paused_at = clock_timestamp()`), 800, "lost", true},
		"of a campaign that is being drawn": {"release", in(`state = 'drawing', draw_started_at = clock_timestamp()`), 800, "lost", false},
		"of a campaign that is drawn": {"release", func(c court, b uuid.UUID) {
			in(`state = 'drawing', draw_started_at = clock_timestamp()`)(c, b)
			in(`state = 'completed', draw_completed_at = clock_timestamp()`)(c, b)
		}, 800, "lost", false},
		"after the end of the users' cancel": {"release", in(`policies = policies::jsonb || '{"cancellation_until": "2020-01-01T00:00:00Z"}'`), 800, "lost", true},
	} {
		c := newCourt(t, a.policy)
		bought := c.buy("mina")
		if a.before != nil {
			a.before(c, bought)
		}
		refunds := servers.Value[int](t, c.db, `SELECT count(*) FROM refunds`)
		messages := c.hear(bought, over(a.lost, a.status)).Messages
		refs := c.releases()
		if len(messages) != len(refs) || (len(refs) == 1) != a.released || len(refs) > 1 {
			t.Errorf("%s: %d jobs, %d messages", name, len(refs), len(messages))
		}
		complete(t, fixture.Seller(c.db), refs...)
		p, sold := purchaseOf(t, c.db, bought), counts(t, c.db, c.id).Sold
		switch {
		case a.released && (p.State != purchase.Cancelled || sold != 0 || p.Cancellation == nil || p.Cancellation.By != "system" || *p.Cancellation.Reason != "disputed"):
			t.Errorf("%s: the purchase is %s, with %d positions sold: %+v", name, p.State, sold, p.Cancellation)
		case !a.released && (p.State != purchase.Completed || sold != len(p.Items)):
			t.Errorf("%s: the purchase is %s, with %d positions sold", name, p.State, sold)
		}
		if n := servers.Value[int](t, c.db, `SELECT count(*) FROM refunds`); n != refunds {
			t.Errorf("%s: it was refunded", name)
		}
		if !strings.HasPrefix(name, "of a campaign") { // these are not so by a draw
			fixture.Sound(t, c.db)
		}
	}
}

// The worker dies before and after the record of the dispute, and that of the job before its commit: there is one job, and one end.
func TestAPurchaseIsReleasedOnceWhereverAWorkerDies(t *testing.T) {
	t.Parallel()
	const buyer = "of a worker that dies" // failpoints are those of all tests here
	c := newCourt(t, campaign.DisputesRelease)
	bought := c.buy(buyer)
	servers.Exec(t, c.db, `INSERT INTO webhook_endpoints (id, client, url, events) SELECT gen_random_uuid(), client, 'https://shop.example', '{dispute.*,purchase.*}' FROM purchases WHERE id = $1`, bought)
	dies := func(point, about string, do func()) {
		t.Helper()
		died := make(chan bool, 1)
		remove := failpoint.Set(point, about, runtime.Goexit)
		go func() {
			survived := false
			defer func() { died <- !survived }()
			do()
			survived = true
		}()
		if !<-died {
			t.Errorf("nobody came by %s", point)
		}
		remove()
	}
	lost := func() { c.hear(bought, over(800, "lost")) }
	dies("payments.review.store", bought.String(), lost)
	if n := len(c.releases()); n != 0 {
		t.Errorf("%d jobs before the commit", n)
	}
	dies("payments.review.stored", bought.String(), lost)
	refs := c.releases()
	if n := servers.Value[int](t, c.db, `SELECT count(*) FROM outbox_messages m JOIN jobs j ON j.id = ANY(m.jobs) WHERE j.client = 'system'`); len(refs) != 1 || n != 1 {
		t.Fatalf("%d jobs, %d messages in the outbox", len(refs), n)
	}
	lost() // it is asked again, and after another change
	c.hear(bought, over(800, "won"))
	lost()
	dies("cancellation.commit", buyer, func() { complete(t, fixture.Seller(c.db), refs...) })
	if p := purchaseOf(t, c.db, bought); p.State != purchase.Completed {
		t.Errorf("it is %s before the commit", p.State)
	}
	complete(t, fixture.Seller(c.db), refs...)
	complete(t, fixture.Seller(c.db), refs...)
	lost()
	if n := len(c.releases()); n != 1 || counts(t, c.db, c.id).Sold != 0 {
		t.Errorf("%d jobs, %+v", n, counts(t, c.db, c.id))
	}
	again := c.buy(buyer) // the positions are free again
	if again == bought {
		t.Error("a new sale is the old purchase")
	}
	if got := servers.Value[string](t, c.db, `SELECT string_agg(type, ' ' ORDER BY id) FROM webhook_events WHERE subject = $1 AND type LIKE 'purchase.%'`, bought); got != "purchase.cancelled" {
		t.Errorf("told: %s", got)
	}
	servers.Exec(t, c.db, `DELETE FROM webhook_endpoints`)
	fixture.Sound(t, c.db)
}

// A dispute is lost while the buyer or an operator asks to cancel, in either order; and it is won before the job runs.
func TestALostDisputeAndACancellationAtOnceEndAPurchaseOnce(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]struct {
		operator, first, won bool // first: the other cancellation is decided first
		want                 string
	}{
		"the buyer first":        {false, true, false, "purchase-disputed cancelled 4,1 4,2; cancelled, 0 refunds"},
		"the buyer afterwards":   {false, false, false, "state-conflict cancelled 4,1 4,2; cancelled, 0 refunds"},
		"an operator first":      {true, true, false, "refunding 4,1 4,2 state-conflict; refunding, 1 refunds"},
		"an operator afterwards": {true, false, false, "state-conflict cancelled 4,1 4,2; cancelled, 0 refunds"},
		"won before it is done":  {false, false, true, "refunding 4,1 4,2 state-conflict; refunding, 1 refunds"},
	} {
		c := newCourt(t, campaign.DisputesRelease)
		bought, ref := fixture.ReserveFor(t, c.db, fixture.PurchaseRequestOf(t, c.id, sale.Order{UserID: "mina", Selection: fixture.Chosen(at(4, 1), at(4, 2)),
			Payment: sale.Payment{Method: purchase.Card, PaymentMethod: "pm_card_visa"}}), time.Hour)
		fixture.Advance(t, c.db, bought, payment.Captured)
		fixture.SettlePayments(t, c.db, ref)
		other := fixture.Accept(t, c.db, fixture.CancelRequestOf(t, c.id, sale.Cancellation{PurchaseID: bought, By: "app:shop", AnyTime: a.operator}))[0]
		c.hear(bought, over(800, "lost"))
		if a.won {
			c.hear(bought, over(800, "won"))
		}
		release := c.releases()[0]
		refs := []job.Ref{release, other}
		if a.first {
			refs = []job.Ref{other, release}
		}
		for _, ref := range refs {
			complete(t, fixture.Seller(c.db), ref)
		}
		got := fmt.Sprintf("%s %s; %s, %d refunds", outcome(t, fixture.Job(t, c.db, other.ID)), outcome(t, fixture.Job(t, c.db, release.ID)), purchaseOf(t, c.db, bought).State,
			servers.Value[int](t, c.db, `SELECT count(*) FROM refunds`))
		if got != a.want {
			t.Errorf("%s: %s\nwant %s", name, got, a.want)
		}
		fixture.Sound(t, c.db)
	}
}

// While another transaction has the payment, the job waits: what it has read of it is not the last word.
func TestAReleaseWaitsForTheLockOfItsPayment(t *testing.T) {
	t.Parallel()
	c := newCourt(t, campaign.DisputesRelease)
	bought := c.buy("mina")
	c.hear(bought, over(800, "lost"))
	setPayment(t, c.db, bought, `amount_disputed = 0`) // as it was read without the lock
	unlock := fixture.LockRows(t, c.db, `payments WHERE purchase_id = $1`, bought)
	refs := c.releases()
	report, err := fixture.Seller(c.db).Cancel(t.Context(), refs, job.LockWait{Campaign: time.Minute})
	servers.NoError(t, err)
	if len(report.Busy) != 1 {
		t.Errorf("decided without the lock: %+v", report)
	}
	unlock()
	complete(t, fixture.Seller(c.db), refs...)
	expectCodes(t, c.db, refs, fault.StateConflict)
}

// What only the provider can do wrong is asked of operators: the bank takes what was refunded before, and returns what was lost.
func TestMoneyThatIsGivenBackTwiceOrReturnedLaterIsADiscrepancy(t *testing.T) {
	t.Parallel()
	c := newCourt(t, campaign.DisputesRelease)
	found := func() string {
		t.Helper()
		list, err := reconciliation.List(t.Context(), c.db, reconciliation.Open, uuid.Nil, 10)
		servers.NoError(t, err)
		details := make([]string, len(list))
		for i, d := range list {
			details[i] = d.ObjectID + " " + d.Detail
		}
		return strings.Join(details, "; ")
	}
	once := c.buy("mina")
	c.hear(once, over(800, "lost"))
	complete(t, fixture.Seller(c.db), c.releases()...)
	if got := found(); got != "" {
		t.Errorf("what is lost once: %s", got)
	}
	c.hear(once, over(800, "won"))
	if got := found(); !strings.HasPrefix(got, "pi_"+once.String()+" the purchase was cancelled since its dispute was lost") {
		t.Errorf("what is returned: %s", got)
	}
	c.byHand(once, 800, "succeeded")
	fixture.Sound(t, c.db)
	servers.Exec(t, c.db, `DELETE FROM payment_discrepancies`)
	servers.Exec(t, c.db, `DELETE FROM disputes`)
	servers.Exec(t, c.db, `UPDATE refunds SET provider_id = 're_first'`)
	twice := c.buy("yuna")
	c.byHand(twice, 300, "succeeded")
	c.hear(twice, over(501, "lost"))
	if got := found(); got != "pi_"+twice.String()+" the buyer has 801 of 800 back: 300 was refunded, and 501 lost in disputes" {
		t.Errorf("what is given back twice: %s", got)
	}
}

// A refund by hand fails after the release: what the bank has taken is not owed for that.
func TestAReleasedPurchaseOwesOnlyWhatWasCancelledBefore(t *testing.T) {
	t.Parallel()
	c := newCourt(t, campaign.DisputesRelease)
	bought := c.buy("mina")
	cancel(t, c.db, partOf(t, c.id, bought, purchaseOf(t, c.db, bought).Items[0].Position))
	c.hear(bought, over(400, "lost"))
	complete(t, fixture.Seller(c.db), c.releases()...)
	err := postgres.InTx(t.Context(), c.db, func(tx pgx.Tx) error {
		_, err := refunds.RecordOutOfBand(t.Context(), tx, []refunds.OutOfBand{{ProviderID: "re_hand", PurchaseID: bought, Amount: 100, Currency: "JPY", State: payment.RefundFailed, Made: true}})
		return err
	})
	if n := servers.Value[int](t, c.db, `SELECT sum(amount) FROM refunds WHERE number IS NOT NULL`); err != nil || n != 400 || purchaseOf(t, c.db, bought).State != purchase.Cancelled {
		t.Errorf("%d are to be refunded: %v", n, err)
	}
	servers.Exec(t, c.db, `UPDATE refunds SET state = 'succeeded', provider_id = 're_ours', finished_at = clock_timestamp() WHERE number = 1`)
	fixture.Sound(t, c.db)
}

func TestPurchasesAreFoundByTheirDisputes(t *testing.T) {
	t.Parallel()
	c := newCourt(t, "")
	elsewhere := court{t, c.db, fixture.Campaign(t, c.db, fixture.Draft(4))}
	named := func(id, status string) payprovider.Dispute {
		d := over(300, status)
		d.ID = id
		return d
	}
	elsewhere.hear(elsewhere.buy("mina"), named("du_elsewhere", "lost"))
	names := make(map[uuid.UUID]string)
	for _, name := range []string{"mina", "yuna", "jun", "kai", "nobody's"} { // in this order
		id, _ := fixture.BuyByCard(t, c.db, c.id, name, 4-len(names)/2, 1)
		names[id] = name
		switch name {
		case "mina":
			c.hear(id, named("du_1", "lost"))
		case "yuna":
			c.hear(id, named("du_2", "needs_response"))
		case "jun":
			c.hear(id, named("du_3", "won"), named("du_4", "warning_closed"))
		case "kai":
			servers.Exec(t, c.db, `UPDATE purchases SET client = 'kiosk' WHERE id = $1`, id)
			c.hear(id, named("du_5", "lost"))
		}
	}
	all := access.Everything()
	for name, a := range map[string]struct {
		outcome string
		filter  purchase.Filter
		want    string // newest first
	}{
		"lost":             {"lost", purchase.Filter{Who: all}, "kai mina"},
		"open":             {"open", purchase.Filter{Who: all}, "yuna"},
		"won":              {"won", purchase.Filter{Who: all}, "jun"},
		"any":              {"any", purchase.Filter{Who: all}, "kai jun yuna mina"},
		"of a client":      {"any", purchase.Filter{Who: access.OfClient("kiosk")}, "kai"},
		"of a user":        {"any", purchase.Filter{Who: all, UserID: "mina"}, "mina"},
		"in a state":       {"any", purchase.Filter{Who: all, State: purchase.Refunded}, ""},
		"by card":          {"lost", purchase.Filter{Who: all, Method: purchase.Card}, "kai mina"},
		"paid by a wallet": {"lost", purchase.Filter{Who: all, Method: purchase.Wallet}, ""},
	} {
		a.filter.CampaignID = c.id
		var got []string
		for page := (postgres.ListPage{Limit: 1}); ; {
			list, next, err := payment.ListDisputed(t.Context(), c.db, a.outcome, a.filter, page)
			servers.NoError(t, err)
			for _, p := range list {
				got = append(got, names[p.ID])
			}
			if page.Before = next; next == uuid.Nil {
				break
			}
		}
		if strings.Join(got, " ") != a.want {
			t.Errorf("%s: %v, want %s", name, got, a.want)
		}
	}
}
