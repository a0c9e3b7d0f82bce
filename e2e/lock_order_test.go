package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// The steps of the lock order, as docs/architecture.md has them.
const (
	newJobs = iota + 1
	events  // of the provider; and what else has transactions of its own
	campaigns
	payments
	refunds
	differences // and what they are found by; never with a campaign
	ofACampaign // only under the lock of its campaign
	ofAPurchase // or under the lock of its payment or refund
	wallets
	ofAWallet
	finalJobs
	outboxMessages
	keys     // before what they have made
	webhooks // one endpoint at a time
	erasures // after what they have erased
)

var stepOf = map[string]int{
	"timelines": events, "payment_events": events, "audit_walks": events, "audit_violations": events, "audit_checks": events, "audit_trail": events, "audit_texts": events, "audit_seals": events, "approvals": events, "approval_movements": events, "api_keys": keys, "campaigns": campaigns, "payments": payments, "refunds": refunds,
	"payment_discrepancies": differences, "balance_transactions": differences, "reconciled_days": differences,
	"positions": ofACampaign, "holds": ofACampaign, "purchases": ofAPurchase, "disputes": ofAPurchase, "purchase_items": ofACampaign, "prizes": ofACampaign,
	"held_times": ofACampaign, "layers": ofACampaign, "commitments": ofACampaign, "freezes": ofACampaign, "draws": ofACampaign,
	"draw_secrets": ofACampaign, "freeze_subtrees": ofACampaign, "beacon_chains": ofACampaign, "beacon_rounds": ofACampaign, "draw_waits": ofACampaign, "position_fills": ofACampaign, "campaign_metadata": ofACampaign, "public_pages": ofACampaign,
	"wallets": wallets, "wallet_metadata": wallets, "ledger_entries": ofAWallet, "wallet_events": ofAWallet, "wallet_snapshots": ofAWallet, "authorizations": ofAWallet,
	"jobs": finalJobs, "refused_jobs": finalJobs, "outbox_messages": outboxMessages,
	"webhook_endpoints": webhooks, "webhook_secrets": webhooks, "webhook_events": webhooks, "webhook_deliveries": webhooks, "webhook_attempts": webhooks,
	"erasures": erasures,
}

var (
	written = regexp.MustCompile(`(INSERT INTO|DELETE FROM|(?:^|[^Y] |[(\n\t])UPDATE) ([a-z_]+)`)
	locking = regexp.MustCompile(`FOR (?:NO KEY )?(?:UPDATE|SHARE)`)
	read    = regexp.MustCompile(`FROM ([a-z_]+)`)
)

// lockSteps returns the steps that a statement takes, ascending.
func lockSteps(t *testing.T, statement string) (steps []int) {
	t.Helper()
	var tables [][]string // with the verb before
	for _, at := range locking.FindAllStringIndex(statement, -1) {
		from := read.FindAllStringSubmatch(statement[:at[0]], -1)
		tables = append(tables, []string{"", "SELECT", from[len(from)-1][1]})
	}
	for _, table := range append(tables, written.FindAllStringSubmatch(statement, -1)...) {
		step, isNew := stepOf[table[2]], table[1] == "INSERT INTO"
		switch {
		case slices.Contains([]string{"payment_steps", "audit_trail", "audit_texts"}, table[2]) && isNew: // nobody changes or locks one
			continue
		case step == 0:
			t.Errorf("the lock order does not have the table %q: %s", table[2], statement)
		case step == finalJobs && table[2] == "jobs" && isNew:
			step = newJobs
		case step == payments && isNew: // under the lock of the campaign
			step = ofACampaign
		case step == refunds && isNew, strings.Contains(statement, "e.outcome = 'uncaptured'"): // or of its payment
			step = ofAPurchase
		}
		steps = append(steps, step)
	}
	slices.Sort(steps)
	return steps
}

// outOfOrder returns the first statement of a transaction that goes back in the
// lock order. What is written later of campaigns and wallets was locked before, as
// their versions show. Rows of a campaign, its draw's job and new payments and refunds
// among them, are free to be written whenever the campaign is locked: nobody else can
// wait for them. A purchase may also be written, and a refund or the job of a lost dispute made, by the transaction that
// has locked its payment or a refund of it. What is erased is over, so no other transaction has it.
func outOfOrder(t *testing.T, transaction []string) string {
	t.Helper()
	last, taken := 0, make(map[int]bool)
	erases := strings.Contains(transaction[len(transaction)-1]+transaction[max(len(transaction)-2, 0)], "UPDATE erasures")
	for _, statement := range transaction {
		for _, step := range lockSteps(t, statement) {
			switch {
			case taken[step], taken[campaigns] && (step == ofACampaign || step == ofAPurchase || step == newJobs), taken[payments] && step == newJobs, erases && step == ofACampaign:
			case step < last, step == ofACampaign, step == ofAPurchase && !taken[payments] && !taken[refunds]:
				return statement
			default:
				last, taken[step] = step, true
			}
		}
	}
	return ""
}

// Every kind of transaction is done at least once, by processes whose statements
// are read on their way to Postgres.
func TestTransactionsLockInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Sandbox: &stripesim.Settings{}})
	s.URLs = nil // the one without a tap is not asked
	tap := fleet.NewTap(t, s.Settings.Postgres.URL)
	env := "TRIPRIZE_POSTGRES_URL=" + tap.URL
	s.RunAPI(env)
	s.RunWorker(env)
	doEverything(s)
	refundByCard(s)
	s.StopAll("worker")
	settings := s.Settings
	settings.Postgres.URL = tap.URL
	payByCard(t, s, servers.Pool(t, settings))
	touched, reversed := make(map[int]int), 0
	for _, transaction := range tap.Transactions() {
		if found := outOfOrder(t, transaction); found != "" {
			t.Errorf("%s\nis out of order in the transaction\n%s", found, strings.Join(transaction, "\n;"))
		}
		for _, statement := range transaction {
			for _, step := range lockSteps(t, statement) {
				touched[step]++
			}
		}
		slices.Reverse(transaction)
		if outOfOrder(t, transaction) != "" {
			reversed++
		}
	}
	if reversed < 10 {
		t.Errorf("only %d transactions would be out of order if they were the other way round: the check finds nothing", reversed)
	}
	for step := newJobs; step <= erasures; step++ {
		if step > outboxMessages && step < erasures {
			continue
		}
		if touched[step] == 0 {
			t.Errorf("nothing has locked anything of step %d", step)
		}
	}
}

// refundByCard buys by card, cancels the purchase, and waits for its refund and until the
// worker has worked off the provider's event of it.
func refundByCard(s *fleet.System) {
	s.T.Helper()
	bought := s.Buy(fleet.Order{Campaign: s.Campaign(3), User: "rita", Layer: 3, Quantity: 2, Card: "pm_card_visa", Wait: true})
	id := bought.Result.PurchaseID
	part := s.Do(0, s.App, http.MethodPost, "/v1/purchases/"+id.String()+"/cancel", map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": fleet.UntilFinal},
		fleet.Fields{"positions": []fleet.Fields{{"layer": 3, "column": bought.Result.Positions[0].Column}}})
	fleet.WantSucceeded(s.T, part)
	s.AwaitJob(0, s.Cancel(s.App, id, uuid.NewString(), "").ID)
	servers.Eventually(s.T, "the purchase is refunded", func() bool { // one refund of a purchase at a time: the other is due later
		if viewPurchase(s, id).State == "refunded" {
			return true
		}
		sweepDueItems(s)
		return false
	})
	servers.Eventually(s.T, "the event of the refund is worked off", func() bool {
		return servers.Value[bool](s.T, s.DB, `SELECT EXISTS (SELECT FROM payment_events WHERE type = 'refund.created' AND handled_at IS NOT NULL)`)
	})
	if unmarked := servers.Value[int](s.T, s.DB, `
		SELECT count(*) FROM payment_events, installation i WHERE object_id LIKE ANY ('{pi_%,re_%}') AND position(i.id::text IN payload) = 0`); unmarked > 0 {
		s.T.Errorf("%d events of intents and refunds without the id of this installation", unmarked)
	}
}

// doEverything uses every operation that writes, and every sweep with something to do.
func doEverything(s *fleet.System) {
	s.T.Helper()
	want := func(a fleet.Answer, statuses ...int) fleet.Answer {
		s.T.Helper()
		if !slices.Contains(statuses, a.Status) || a.Problem != nil {
			s.T.Fatalf("%v %s", a, a.Body)
		}
		return a
	}
	operate := func(method, path string, body any) fleet.Answer {
		return s.Do(0, s.Operator, method, path, map[string]string{"Idempotency-Key": uuid.NewString()}, body)
	}
	made := want(operate(http.MethodPost, "/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated)
	path := "/v1/campaigns/" + made.ID.String()
	want(operate(http.MethodPatch, path, fleet.Fields{"name": "another"}), http.StatusOK)
	for _, command := range []string{"publish", "pause", "resume"} {
		want(operate(http.MethodPost, path+"/"+command, nil), http.StatusOK)
	}

	nameOfMina, nameOfOtto := "mina-"+uuid.NewString(), "otto-"+uuid.NewString() // it may be done again
	mina, otto := s.Wallet(nameOfMina, 100_000), s.Wallet(nameOfOtto, 100_000)
	want(s.Execute(mina+"/credit", fleet.Fields{"amount": 10}), http.StatusOK)
	want(s.Execute(mina+"/debit", fleet.Fields{"amount": 10}), http.StatusOK)
	want(s.Execute("/v1/transfers", fleet.Fields{"from": fleet.WalletID(mina), "to": fleet.WalletID(otto), "amount": 10}), http.StatusCreated)
	for _, end := range []string{"capture", "void", ""} { // the last one is left to the sweep
		authorized := want(s.Execute(mina+"/authorizations", fleet.Fields{"amount": 10}), http.StatusCreated)
		if end != "" {
			want(s.Execute(mina+"/authorizations/"+authorized.ID.String()+"/"+end, fleet.Fields{}), http.StatusOK)
		}
	}

	campaign := s.Campaign(4)
	hold := func(user string, at shape.Position) fleet.Held {
		return s.MustHold(fleet.HoldOrder{Campaign: campaign, User: user, At: []shape.Position{at}})
	}
	want(s.Release(s.App, hold(nameOfMina, fixture.At(1, 1)).ID), http.StatusNoContent)
	kept := hold(nameOfMina, fixture.At(2, 1))
	want(s.Extend(s.App, kept.ID).Answer, http.StatusOK)
	held := want(s.BuyChosen(0, campaign, nameOfMina, kept.ID), http.StatusOK)
	byWallet := want(s.Buy(fleet.Order{Campaign: campaign, User: nameOfOtto, ByWallet: true, Wait: true}), http.StatusOK)
	for _, bought := range []fleet.Answer{held, byWallet} {
		want(s.Cancel(s.App, bought.Result.PurchaseID, uuid.NewString(), "back"), http.StatusOK)
	}
	hold(nameOfOtto, fixture.At(3, 1))
	fixture.Reserve(s.T, s.DB, campaign, "late", 1, -time.Second)
	for _, overdue := range []string{`UPDATE holds SET expires_at = clock_timestamp() WHERE state = 'active'`, `UPDATE positions SET expires_at = clock_timestamp() WHERE state = 'held'`,
		`UPDATE authorizations SET expires_at = clock_timestamp() WHERE state = 'active'`,
		`INSERT INTO installation (created_at) VALUES (clock_timestamp() - interval '5 days') ON CONFLICT (one) DO UPDATE SET created_at = excluded.created_at`, // there are days to be reconciled
		`INSERT INTO payment_discrepancies (id, kind, object_id, detail) SELECT id, 'unknown-there', id, '' FROM (SELECT gen_random_uuid() AS id) d`} {
		servers.Exec(s.T, s.DB, overdue)
	}
	var differences struct {
		Differences []struct{ ID uuid.UUID } `json:"payment_discrepancies"`
	}
	servers.NoError(s.T, json.Unmarshal(want(s.Do(0, s.Operator, http.MethodGet, "/v1/payment-discrepancies?state=open", nil, nil), http.StatusOK).Body, &differences))
	want(operate(http.MethodPost, "/v1/payment-discrepancies/"+differences.Differences[0].ID.String()+"/explain", fleet.Fields{"version": 0, "reason": "a test"}), http.StatusOK)
	for _, sweep := range s.Sweeps() {
		want(operate(http.MethodPost, "/v1/sweeps/"+sweep.Name, nil), http.StatusOK)
	}

	soldOut := s.Campaign(3)
	for _, a := range s.Crowd(6, func(i int) fleet.Order { return fleet.Order{Campaign: soldOut, User: fmt.Sprint(i), Wait: true} }) {
		fleet.WantSucceeded(s.T, a)
	}
	s.AwaitDrawn(soldOut)
	want(s.Execute("/v1/users/0/erase", fleet.Fields{"reason": "asked"}, "Prefer", fleet.UntilFinal), http.StatusOK)
}

// payByCard does everything that a sale does about cards, through a pool with a tap.
func payByCard(t *testing.T, s *fleet.System, db *pgxpool.Pool) {
	t.Helper()
	campaign := s.Campaign(4)
	fixture.Wallet(t, s.DB, "wally", 10_000)
	seller := fixture.Seller(db)
	sell := func(requests ...job.Request) (bought []uuid.UUID, refs []job.Ref) {
		refs = fixture.Accept(t, s.DB, requests...)
		report, err := seller.Sell(t.Context(), refs, sale.WaitForCampaign)
		servers.NoError(t, err)
		for _, p := range report.Due {
			bought = append(bought, p.ID)
		}
		return bought, refs
	}
	card := func() job.Request { return fixture.CardRequest(t, campaign, "carl", 0, 1) }
	bought, refs := sell(card(), card(), card(), fixture.WalletRequest(t, campaign, "wally", 0, 1))
	byWallet, _, err := purchase.List(t.Context(), s.DB, purchase.Filter{Who: access.Everything(), UserID: "wally"}, postgres.ListPage{Limit: 1})
	if err != nil || len(byWallet) != 1 || len(bought) != 3 {
		t.Fatal(byWallet, bought, err)
	}
	cancel := func(purchases ...uuid.UUID) {
		var requests []job.Request
		for _, id := range purchases {
			requests = append(requests, fixture.CancelRequest(t, campaign, id))
		}
		if _, err := seller.Cancel(t.Context(), fixture.Accept(t, s.DB, requests...), sale.WaitForCampaign); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range bought[:2] {
		fixture.Advance(t, db, id, payment.Captured)
	}
	fixture.SettlePayments(t, db, refs[:1]...)
	cancel(bought[0], bought[1], bought[2], byWallet[0].ID)
	fixture.Advance(t, db, bought[2], payment.Ended)
	fixture.SettlePayments(t, db, refs...)
	fixture.ReserveFor(t, db, card(), -time.Second)
	if n, err := sale.ExpireReservations(t.Context(), db, 10); err != nil || n != 1 {
		t.Fatal(n, err)
	}
}
