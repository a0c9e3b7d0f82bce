package reconciliation_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/config"
	"triprize/internal/platform/stripe"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

func TestMain(m *testing.M) { servers.Main(m) }

// past is how long ago all happens at the provider. Two days are closed then, so what our
// books have of the first one is compared at any time of the day.
const past = 100 * time.Hour

const key = "sk_test_0123456789abcdef"

// account is an account at the provider.
type account struct {
	sim    *stripesim.Server
	client *stripe.Client // without a mark of ours
}

func openAccount(t *testing.T, settings stripesim.Settings) *account {
	t.Helper()
	settings.Key, settings.Rate, settings.EndpointRate, settings.Later = key, -1, -1, time.Hour
	settings.Clock = func() time.Time { return time.Now().Add(-past) }
	sim, err := stripesim.New(settings)
	servers.NoError(t, err)
	server := httptest.NewServer(sim)
	client := stripe.New(config.Stripe{Key: key, URL: server.URL, MethodTypes: "card", Timeout: servers.Patience, Rate: 10_000, EndpointRate: 10_000},
		servers.Logger(t), prometheus.NewRegistry())
	t.Cleanup(func() {
		client.Close()
		sim.Release()
		server.Close()
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	return &account{sim, client}
}

// shop is an installation that uses an account.
type shop struct {
	*account
	t        testing.TB
	db       *pgxpool.Pool
	log      *servers.Journal
	provider payprovider.Provider // marks what it makes
	payments *cards.Runner
	refunds  *refunds.Runner
	events   *cards.Events
	campaign uuid.UUID
}

func openShop(t *testing.T, a *account) *shop {
	t.Helper()
	db, log := servers.DB(t), &servers.Journal{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	servers.Exec(t, db, `INSERT INTO installation (created_at) VALUES (clock_timestamp() - interval '100 hours')`)
	provider := reconciliation.Mark(a.client, db)
	s := &shop{account: a, t: t, db: db, log: log, provider: provider, campaign: fixture.Campaign(t, db, fixture.Draft(10)),
		payments: cards.NewRunner(db, provider, cards.Settings{Lease: time.Hour, CallTimeout: time.Minute, Recheck: time.Minute}, logger, prometheus.NewRegistry()),
		refunds:  refunds.NewRunner(db, provider, refunds.Settings{Lease: time.Hour, Recheck: time.Minute}, logger, prometheus.NewRegistry()),
		events:   cards.NewEvents(db, a.client, logger, prometheus.NewRegistry())}
	return s
}

// bought is a purchase by card, and what the provider has of it.
type bought struct {
	purchase uuid.UUID
	intent   string
	charge   string
}

// buy has a card pay for a position, as the workers do it.
func (s *shop) buy(method string) (b bought) {
	s.t.Helper()
	request := fixture.PurchaseRequestOf(s.t, s.campaign, sale.Order{UserID: uuid.NewString(), Selection: fixture.Random(0, 1),
		Payment: sale.Payment{Method: purchase.Card, PaymentMethod: method}})
	id, ref := fixture.ReserveFor(s.t, s.db, request, time.Hour)
	p := fixture.Payment(s.t, s.db, id)
	result, err := s.payments.Run(s.t.Context(), p.Ref().Item())
	if result.Phase == payment.CardDeclined { // and no other card comes
		servers.Exec(s.t, s.db, `UPDATE payments SET declined_until = clock_timestamp() WHERE purchase_id = $1`, id)
		result, err = s.payments.Run(s.t.Context(), result.Ref.Item())
	}
	if err != nil || result.Outcome != cards.Settle {
		s.t.Fatalf("%+v, %v: %s", result, err, s.log)
	}
	fixture.SettlePayments(s.t, s.db, ref)
	b = bought{purchase: id, intent: *fixture.Payment(s.t, s.db, id).IntentID}
	for _, p := range s.sim.Payments() {
		if p.ID == b.intent {
			b.charge = p.Charge
		}
	}
	return b
}

// giveBack takes a purchase back and makes its refund. It returns our id of it.
func (s *shop) giveBack(b bought) uuid.UUID {
	s.t.Helper()
	refs := fixture.Accept(s.t, s.db, fixture.CancelRequest(s.t, s.campaign, b.purchase))
	report, err := fixture.Seller(s.db).Cancel(s.t.Context(), refs, sale.WaitForCampaign)
	s.must(err)
	id := report.Due[0].ID
	s.runRefund(id)
	return id
}

func (s *shop) runRefund(id uuid.UUID) payment.Refund {
	s.t.Helper()
	r := s.refundNow(id)
	_, err := s.refunds.Run(s.t.Context(), r.Item())
	s.must(err)
	return s.refundNow(id)
}

func (s *shop) refundNow(id uuid.UUID) payment.Refund { return fixture.Refund(s.t, s.db, id) }

// tryAgain has an operator try a refused refund again.
func (s *shop) tryAgain(id uuid.UUID) {
	s.t.Helper()
	service := refunds.NewService(s.db, func(payment.Refund) any { return map[string]any{} })
	_, err := service.Retry(s.t.Context(), fixture.Command(job.KindRefundRetry), id, "operator:ops")
	s.must(err)
	s.runRefund(id)
}

// byHand makes a refund of 50 at the provider, as its dashboard does.
func (s *shop) byHand(intent string) string {
	s.t.Helper()
	r, err := s.client.CreateRefund(s.t.Context(), payprovider.NewRefund{Key: uuid.NewString(), IntentID: intent, Amount: 50})
	s.must(err)
	return r.ID
}

// dispute has the buyer dispute a charge.
func (s *shop) dispute(b bought) string {
	s.t.Helper()
	id, err := s.sim.Dispute(b.charge)
	servers.NoError(s.t, err)
	return id
}

// must fails when there is an error.
func (s *shop) must(err error) {
	s.t.Helper()
	servers.NoError(s.t, err)
}

// hear stores all events of the provider, and works them off.
func (s *shop) hear() {
	s.t.Helper()
	var all []payprovider.Event
	s.must(s.client.ListEvents(s.t.Context(), time.Unix(0, 0), time.Now(), payprovider.EventTypes(s.client), func(e payprovider.Event) error { all = append(all, e); return nil }))
	slices.Reverse(all)
	for some := range slices.Chunk(all, 100) {
		if _, err := s.events.Store(s.t.Context(), some); err != nil {
			s.t.Fatal(err)
		}
	}
	for more := true; more; {
		done, err := s.events.Process(s.t.Context())
		s.must(err)
		for _, ref := range done.Payments {
			_, err := s.payments.Run(s.t.Context(), ref.Item())
			s.must(err)
		}
		more = done.More
	}
	servers.Exec(s.t, s.db, `UPDATE refunds SET due_at = NULL WHERE state IN ('succeeded', 'failed')`) // a worker has fetched what was woken, and found nothing new
}

// age moves what our books have done into the provider's time.
func (s *shop) age() {
	s.t.Helper()
	for _, table := range []string{"payments", "refunds"} {
		servers.Exec(s.t, s.db, `UPDATE `+table+` SET finished_at = finished_at - interval '100 hours' WHERE finished_at > clock_timestamp() - interval '50 hours'`)
	}
}

// reconcile compares all days that are closed.
func (s *shop) reconcile() (sum reconciliation.Report) {
	s.t.Helper()
	return s.reconcileWith(s.client)
}

func (s *shop) reconcileWith(provider payprovider.Provider) (sum reconciliation.Report) {
	s.t.Helper()
	s.age()
	r := reconciliation.New(s.db, provider, 300*24*time.Hour, slog.New(slog.NewTextHandler(s.log, nil)))
	for more := true; more; {
		done, again, err := r.Run(s.t.Context())
		s.must(err)
		more = again
		sum.Days, sum.Listed, sum.Foreign = sum.Days+done.Days, sum.Listed+done.Listed, sum.Foreign+done.Foreign
		sum.Found, sum.Closed = sum.Found+done.Found, sum.Closed+done.Closed
	}
	return sum
}

// again lets all days be compared once more.
func (s *shop) again() {
	servers.Exec(s.t, s.db, `DELETE FROM reconciled_days`)
}

// kinds are the kind and object of discrepancies, in order.
func kinds(all []reconciliation.Discrepancy) (list []string) {
	for _, d := range all {
		list = append(list, fmt.Sprintf("%s %s", d.Kind, d.ObjectID))
	}
	slices.Sort(list)
	return list
}

// expect checks which discrepancies are open.
func (s *shop) expect(want ...string) {
	s.t.Helper()
	all, err := reconciliation.List(s.t.Context(), s.db, reconciliation.Open, uuid.Nil, 10_000)
	s.must(err)
	slices.Sort(want)
	if got := kinds(all); !slices.Equal(got, want) {
		s.t.Errorf("open: %q; wanted: %q", got, want)
	}
}

// calm lets what events have woken be looked at, so that nothing is due.
func (s *shop) calm() {
	s.t.Helper()
	s.exec(`UPDATE payments SET due_at = NULL WHERE finished_at IS NOT NULL`)
	s.exec(`UPDATE refunds SET due_at = NULL WHERE finished_at IS NOT NULL`)
}

// compare compares all time at the provider until now, at once.
func (s *shop) compare() reconciliation.Span {
	s.t.Helper()
	return s.compareSpan(s.client, time.Now().Add(-past-time.Hour), time.Now())
}

func (s *shop) compareSpan(provider payprovider.Provider, from, to time.Time) reconciliation.Span {
	s.t.Helper()
	s.age()
	session, err := s.db.Acquire(s.t.Context())
	s.must(err)
	defer session.Release()
	found, err := reconciliation.CompareSpan(s.t.Context(), session, provider, from, to)
	s.must(err)
	return found
}

// expectSpan checks what a comparison of a span has found.
func (s *shop) expectSpan(found reconciliation.Span, underWay int, want ...string) {
	s.t.Helper()
	got := kinds(found.Discrepancies)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(found.UnderWay) != underWay {
		s.t.Errorf("discrepancies: %q; wanted: %q; under way: %+v", got, want, found.UnderWay)
	}
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	servers.Exec(s.t, s.db, sql, args...)
}

func (s *shop) payment(b bought) payment.Payment { return fixture.Payment(s.t, s.db, b.purchase) }
