package books_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/books"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
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

const stripeKey = "sk_test_0123456789abcdef"

// firm is an installation that lives by a clock that is set, its provider, and its books on paper.
type firm struct {
	*testing.T
	paper
	random *rand.Rand
	rules  books.Rules
	db     *pgxpool.Pool
	set    func(moment string)
	ahead  atomic.Int64 // of the provider's clock, nanoseconds

	sim      *stripesim.Server
	url      string
	client   *stripe.Client
	payments *cards.Runner
	refunds  *refunds.Runner
	events   *cards.Events
	compared *reconciliation.Reconciler

	offers  []*offer
	deals   []*deal
	wallets []uuid.UUID
	holds   []*hold
	serial  int

	since    time.Time         // what the provider has told before it is on paper
	told     map[string]bool   // events that are on paper
	statuses map[string]string // of refunds, as they were told last
	made     map[string]int64  // by refunds of ours
	booked   map[string]bool   // balance transactions that are on paper

	listed     []movement // these
	reconciled time.Time
	isAway     bool // no day is compared
}

// hold is an authorization that is not captured.
type hold struct {
	wallet, id uuid.UUID
	made       time.Time
	left       int64
}

// newFirm returns the firm of a seed: with odd ones the provider's balance is in dollars, and sales are earned when they end.
func newFirm(t *testing.T, seed uint64) *firm {
	t.Helper()
	settings, rules := stripesim.Settings{}, books.Rules{EarnedAt: books.AtResult, Numbers: now.Numbers}
	if seed%2 == 1 {
		settings.SettlesIn, settings.ExchangeRate, rules.EarnedAt = "usd", 0.65, books.AtSaleEnd
	}
	zone, err := time.LoadLocation("Asia/Tokyo")
	servers.NoError(t, err)
	f := &firm{T: t, paper: paper{zone: zone}, rules: rules, random: rand.New(rand.NewPCG(seed, 64)), told: map[string]bool{}, statuses: map[string]string{}, made: map[string]int64{}, booked: map[string]bool{}}
	f.db, f.set = clocked(t)
	// Entries of the ledger have ids of this clock, but for some, as if they had waited.
	servers.Exec(t, f.db, `CREATE FUNCTION public.by_the_clock(id uuid) RETURNS uuid LANGUAGE sql AS $$
		SELECT CASE WHEN right(id::text, 1) < '8' THEN id ELSE (lpad(to_hex(('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint +
			(SELECT round(extract(epoch FROM by) * 1000)::bigint FROM public.clock_offset)), 12, '0') || right(translate(id::text, '-', ''), 20))::uuid END $$`)
	for table, column := range map[string]string{"ledger_entries": "id", "wallet_events": "entry_id"} {
		servers.Exec(t, f.db, fmt.Sprintf(`CREATE FUNCTION public.%[1]s_by_the_clock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.%[2]s := public.by_the_clock(NEW.%[2]s); RETURN NEW; END $$`, table, column))
		servers.Exec(t, f.db, fmt.Sprintf(`CREATE TRIGGER by_the_clock BEFORE INSERT ON %[1]s FOR EACH ROW EXECUTE FUNCTION public.%[1]s_by_the_clock()`, table))
	}
	f.goTo(time.Date(2026, 6, 28, 3, 0, 0, 0, time.UTC))
	settings.Key, settings.Rate, settings.EndpointRate, settings.Processing, settings.Later = stripeKey, -1, -1, 2000*time.Hour, 30*time.Hour
	settings.Clock = func() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) }
	f.sim, err = stripesim.New(settings)
	servers.NoError(t, err)
	server := httptest.NewServer(f.sim)
	f.url, f.since = server.URL, f.now.Add(-time.Minute)
	f.client = stripe.New(config.Stripe{Key: stripeKey, URL: server.URL, MethodTypes: "card,konbini", Timeout: servers.Patience, Rate: 10_000, EndpointRate: 10_000},
		servers.Logger(t), prometheus.NewRegistry())
	t.Cleanup(func() {
		f.client.Close()
		f.sim.Release()
		server.Close()
		servers.NoError(t, f.sim.Close())
	})
	servers.Exec(t, f.db, `INSERT INTO installation (created_at) VALUES (clock_timestamp())`)
	provider := reconciliation.Mark(f.client, f.db)
	f.payments = cards.NewRunner(f.db, provider, cards.Settings{Lease: time.Hour, CallTimeout: time.Minute, Recheck: time.Minute}, servers.Logger(t), prometheus.NewRegistry())
	f.refunds = refunds.NewRunner(f.db, provider, refunds.Settings{Lease: time.Hour, Recheck: time.Minute}, servers.Logger(t), prometheus.NewRegistry())
	f.events = cards.NewEvents(f.db, f.client, servers.Logger(t), prometheus.NewRegistry())
	for i := range 4 {
		f.wallets = append(f.wallets, fixture.Wallet(t, f.db, fmt.Sprint("wallet-", i), 0))
	}
	f.compared = reconciliation.New(f.db, f.client, 400*24*time.Hour, servers.Logger(t))
	return f
}

// goTo moves the clocks on to a moment.
func (f *firm) goTo(to time.Time) {
	f.Helper()
	if to.Before(f.now) {
		f.Fatalf("from %s back to %s", f.now, to)
	}
	f.now = to
	f.set(to.UTC().Format("2006-01-02 15:04:05+00"))
	f.ahead.Store(int64(time.Until(to)))
}

func (f *firm) must(err error) {
	f.Helper()
	servers.NoError(f.T, err)
}

// request is for positions, at a moment before now.
func (f *firm) request(o *offer, user string, method purchase.PaymentMethod, card string, chosen []shape.Position, ago time.Duration) job.Request {
	r := fixture.PurchaseRequestOf(f, o.id, sale.Order{UserID: user, Selection: fixture.Chosen(chosen...), Payment: sale.Payment{Method: method, PaymentMethod: card}})
	made := uuidv7.FirstAt(f.now.Add(-ago))
	copy(r.ID[:6], made[:6])
	r.Key = r.ID.String()
	return r
}

// hear has the workers do what is due, until nothing is, and then notes what the provider tells.
func (f *firm) hear() {
	f.Helper()
	for range 30 {
		if !f.work() {
			f.listen()
			return
		}
	}
	f.Fatal("work is due for ever")
}

func (f *firm) work() (more bool) {
	f.Helper()
	ctx := f.Context()
	var all []payprovider.Event
	f.must(f.client.ListEvents(ctx, f.since.Add(-time.Minute), f.now.Add(time.Hour), payprovider.EventTypes(f.client), func(e payprovider.Event) error { all = append(all, e); return nil }))
	for some := range slices.Chunk(all, 100) {
		_, err := f.events.Store(ctx, some)
		f.must(err)
	}
	for again := true; again; {
		done, err := f.events.Process(ctx)
		f.must(err)
		again = done.More
		more = more || len(done.Payments) > 0
	}
	for id := range strings.FieldsSeq(servers.Value[string](f, f.db, `SELECT coalesce(string_agg(purchase_id::text, ' '), '') FROM payments WHERE due_at <= clock_timestamp()`)) {
		more = true
		p := fixture.Payment(f, f.db, uuid.MustParse(id))
		result, err := f.payments.Run(ctx, p.Ref().Item())
		f.must(err)
		if result.Outcome == cards.Settle {
			fixture.SettlePayments(f, f.db, job.Ref{ID: p.PurchaseID, CampaignID: p.CampaignID})
		}
	}
	for id := range strings.FieldsSeq(servers.Value[string](f, f.db, `SELECT coalesce(string_agg(id::text, ' ' ORDER BY id), '') FROM refunds WHERE method = 'card' AND number IS NOT NULL AND due_at <= clock_timestamp()`)) {
		more = true
		r := fixture.Refund(f, f.db, uuid.MustParse(id))
		_, err := f.refunds.Run(ctx, r.Item())
		f.must(err)
	}
	return more
}

// list reads objects of the provider, the oldest first.
func list[T any](f *firm, path string, since time.Time) (all []T) {
	f.Helper()
	for after := ""; ; {
		query := url.Values{"limit": {"100"}, "created[gte]": {fmt.Sprint(since.Unix())}}
		if after != "" {
			query.Set("starting_after", after)
		}
		if path == "/v1/balance_transactions" {
			query.Set("expand[]", "data.source")
		}
		request, err := http.NewRequestWithContext(f.Context(), http.MethodGet, f.url+path+"?"+query.Encode(), nil)
		f.must(err)
		request.SetBasicAuth(stripeKey, "")
		answer, err := http.DefaultClient.Do(request)
		f.must(err)
		var page struct {
			Data    []json.RawMessage
			HasMore bool `json:"has_more"`
		}
		err = json.NewDecoder(answer.Body).Decode(&page)
		_ = answer.Body.Close()
		f.must(err)
		for _, raw := range page.Data {
			var one T
			var id struct{ ID string }
			f.must(json.Unmarshal(raw, &one))
			f.must(json.Unmarshal(raw, &id))
			all, after = append(all, one), id.ID
		}
		if !page.HasMore {
			slices.Reverse(all)
			return all
		}
	}
}

// object is what is told of payments, refunds and disputes.
type object struct{ about }

// UnmarshalJSON leaves out what is an id only: of a payout.
func (o *object) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		return nil
	}
	return json.Unmarshal(raw, &o.about)
}

type about struct {
	ID, Status, Charge, Currency string
	Amount                       int64
	Received                     int64  `json:"amount_received"`
	LatestCharge                 string `json:"latest_charge"`
	Metadata                     map[string]string
	Movements                    []struct {
		Fee      int64
		Currency string
	} `json:"balance_transactions"`
}

// listen puts on paper what the provider tells.
func (f *firm) listen() {
	f.Helper()
	type told struct {
		ID, Type string
		Data     struct{ Object object }
	}
	for _, e := range list[told](f, "/v1/events", f.since) {
		if o := e.Data.Object; !f.told[e.ID] {
			f.told[e.ID] = true
			switch d := f.dealOf(func(d *deal) bool { return d.id.String() == o.Metadata["purchase_id"] }); {
			case e.Type == "payment_intent.created":
				d.intent = o.ID
			case e.Type == "payment_intent.succeeded":
				f.received(d, o)
			case strings.HasPrefix(e.Type, "refund."):
				if d := f.ofCharge(o.Charge); d != nil { // a void of an authorization has none
					f.refunded(d, o)
				}
			case strings.HasPrefix(e.Type, "charge.dispute."):
				f.disputed(f.ofCharge(o.Charge), o)
			}
		}
	}
	f.since = f.now.Add(-time.Minute)
}

func (f *firm) dealOf(is func(*deal) bool) *deal {
	if i := slices.IndexFunc(f.deals, is); i >= 0 {
		return f.deals[i]
	}
	return nil
}

func (f *firm) ofCharge(charge string) *deal {
	return f.dealOf(func(d *deal) bool { return d.charge != "" && d.charge == charge })
}

const baseLength = 6

func (f *firm) publish() {
	o := &offer{id: fixture.Campaign(f, f.db, fixture.Draft(baseLength)), unearned: map[string]int64{}}
	for layer := 1; layer <= baseLength; layer++ {
		for column := 1; column <= layer; column++ {
			o.free = append(o.free, fixture.At(layer, column))
		}
	}
	f.offers = append(f.offers, o)
}

// pick takes a random one of those for which a condition holds; nil: there is none.
func pick[T any](f *firm, all []*T, is func(*T) bool) *T {
	if fit := slices.DeleteFunc(slices.Clone(all), func(one *T) bool { return !is(one) }); len(fit) > 0 {
		return fit[f.random.IntN(len(fit))]
	}
	return nil
}

// offer is a campaign that sells, and some positions that are left to sell, but not the last.
func (f *firm) offer() (o *offer, some []shape.Position) {
	if o = pick(f, f.offers, func(o *offer) bool { return !o.over && len(o.free) > 3 }); o != nil {
		for range 1 + f.random.IntN(3) {
			i := f.random.IntN(len(o.free))
			some, o.free = append(some, o.free[i]), slices.Delete(o.free, i, i+1)
		}
	}
	return o, some
}

func price(positions []shape.Position) (sum int64) {
	for _, p := range positions {
		sum += 100 * int64(p.Layer)
	}
	return sum
}
