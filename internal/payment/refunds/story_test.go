package refunds_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/provider"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// world is a purchase of which money is to be refunded, and the provider that has it.
type world struct {
	t        *testing.T
	db       *pgxpool.Pool
	runner   *refunds.Runner
	registry *prometheus.Registry
	provider *provider.Double
	intent   string
	campaign uuid.UUID
	bought   uuid.UUID
	id       uuid.UUID        // of the refund that is worked on
	kept     []shape.Position // of the purchase
}

// newWorld is a purchase of 400 JPY that was cancelled: its refund is open.
func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOn(t, servers.DB(t))
}

func worldOn(t *testing.T, db *pgxpool.Pool) *world {
	t.Helper()
	w := purchased(t, db, 3, 2)
	w.cancel("all")
	return w
}

// purchased is a completed purchase of a layer by card: 2 positions of layer 2 for 400 JPY, or 4 of layer 4 for 1600.
func purchased(t *testing.T, db *pgxpool.Pool, layers, layer int) *world {
	t.Helper()
	w := &world{t: t, db: db, registry: prometheus.NewRegistry(), campaign: fixture.Campaign(t, db, fixture.Draft(layers))}
	w.bought, _ = fixture.BuyByCard(t, db, w.campaign, "mina", layer, layer)
	p, err := purchase.Get(t.Context(), db, access.Everything(), w.bought)
	servers.NoError(t, err)
	for _, item := range p.Items {
		w.kept = append(w.kept, item.Position)
	}
	w.intent, w.provider = *fixture.Payment(t, db, w.bought).IntentID, provider.New()
	w.provider.Put(payprovider.Intent{ID: w.intent, Status: payprovider.Succeeded, Amount: p.Amount, Received: p.Amount})
	w.runner = refunds.NewRunner(db, w.provider, refunds.Settings{Lease: time.Hour, Recheck: time.Minute}, servers.Logger(t), w.registry)
	return w
}

// stories lets happen what each says, in a world of its own. A line is commands, and what is then:
//
//	run; hear 1 → finished create#1/400; 400 succeeded re_1; refunded, 400 back
//
// The words are: what the last command has said, the calls since the last line (create#KEY/AMOUNT), our refunds
// and those by others, the purchase, and what the provider has given back. See [world.do] and [world.now].
func stories(t *testing.T, all map[string]string) {
	t.Helper()
	for name, story := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			var w *world
			if strings.Contains(story, "hear ") { // another purchase counts for nothing
				worldOn(t, db).do("run")
			}
			if strings.Contains(story, "cancel ") {
				w = purchased(t, db, 4, 4)
			} else {
				w = worldOn(t, db)
			}
			w.tell(story)
		})
	}
}

func (w *world) tell(story string) {
	w.t.Helper()
	provider.Tell(w.t, story, w.do, w.now)
	fixture.Sound(w.t, w.db)
}

// do carries out one command, and returns what it says.
func (w *world) do(command string) string {
	w.t.Helper()
	words := strings.Fields(command)
	at := func(i int) (word string) {
		if i < len(words) {
			word = words[i]
		}
		return word
	}
	amount := func(i int) money.Amount {
		n, err := strconv.Atoi(at(i))
		if err != nil {
			w.t.Fatal(command, err)
		}
		return money.Amount(n)
	}
	switch words[0] {
	case "run": // by a worker
		result, err := w.runner.Run(w.t.Context(), lease.Item{ID: w.id, Version: w.refund().Version, Kind: "refund"})
		return w.or(string(result), err)
	case "due": // as a sweep finds it: nothing else is
		due, err := payment.RefundLeases.TakeDue(w.t.Context(), w.db, time.Hour, 10)
		if err != nil || len(due) != 1 || due[0].ID != w.id {
			w.t.Errorf("due are %v, %v", due, err)
		}
	case "event": // of the provider, about the purchase
		woken, err := payment.WakeRefunds(w.t.Context(), w.db, []uuid.UUID{w.bought}, nil)
		return w.or(fmt.Sprint(len(woken), " woken"), err)
	case "sql": // what the passing of time would change
		w.sql(`UPDATE refunds SET ` + strings.TrimPrefix(command, "sql ") + ` WHERE id = $1`)
	case "second": // the refund is of 300, and another of 100 was refused
		w.sql(`UPDATE refunds SET amount = 300 WHERE id = $1`)
		servers.Exec(w.t, w.db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
			SELECT $1, purchase_id, 2, campaign_id, user_id, method, 100, currency, reason, 'failed' FROM refunds WHERE id = $2`, uuidv7.New(), w.id)
	case "use": // another refund of ours
		ours, _ := w.all()
		w.id = ours[amount(1)-1].ID
	case "cancel": // positions, or all
		return w.cancel(at(1))
	case "hand": // somebody refunds in the provider's dashboard
		w.provider.AddRefund(w.intent, amount(1), payprovider.RefundStatus(at(2)), nil)
	case "hear": // of a refund at the provider, before the worker of ours runs
		w.hear(int(amount(1)) - 1)
	case "bank": // changes a refund at the provider
		r := &w.provider.Refunds[amount(1)-1]
		r.Status, r.Failure = payprovider.RefundStatus(at(2)), at(3)
	case "new": // the status of new refunds
		w.provider.Status, w.provider.Failure = payprovider.RefundStatus(at(1)), at(2)
	case "fault": // of calls, before they have an effect; "once", or "after" it
		w.provider.Hook(provider.Hook{Call: at(1), Once: strings.Contains(command, " once"), After: strings.Contains(command, " after"), Do: func(string) error { return says(at(2)) }})
	case "during": // a call: other commands, with commas
		first, rest, _ := strings.Cut(command, ": ")
		var n int
		_, _ = fmt.Sscanf(first, "during "+at(1)+" %d", &n)
		w.provider.Hook(provider.Hook{Call: strings.TrimSuffix(at(1), ":"), Skip: n - 1, Once: true, Do: func(string) error {
			for one := range strings.SplitSeq(rest, ", ") {
				w.do(one)
			}
			return nil
		}})
	case "mended": // the faults
		w.provider.Mend()
	case "stored": // a fault under the first key
		fault := says(at(1))
		fault.Replayed = at(2) == "replayed"
		var asked any // by the first call
		if len(w.provider.Asked) > 0 {
			asked = w.provider.Asked[0].Amount
		}
		w.provider.Store("create", "re:"+w.id.String()+":1", asked, fault)
	case "made": // a call, once more, outside of its key
		n := w.provider.Asked[amount(1)-1]
		w.provider.AddRefund(w.intent, n.Amount, "", n.Metadata)
	case "arrive": // the first call, late
		w.provider.Arrive()
	case "forgets": // the provider, its keys
		w.provider.Forget()
	case "dispute":
		servers.Exec(w.t, w.db, `UPDATE payments SET disputed_at = clock_timestamp(), dispute = json_build_object('id', 'du_1', 'status', $1::text, 'reason', 'fraudulent', 'refundable', $1 = 'won')`, at(1))
	case "retry":
		return said(service(w).Retry(w.t.Context(), fixture.Command(job.KindRefundRetry), w.id, "operator:ops"))
	case "resolve":
		made := w.shown(w.id)
		if at(1) != "campaign" {
			if at(1) != "" { // what an older form shows
				made.Amount = amount(1)
			}
			return said(service(w).Resolve(w.t.Context(), fixture.Command(job.KindRefundResolve), access.Everything(), made, "operator:ops", "by bank"))
		}
		r := fixture.Command(job.KindRefundsResolve) // of the campaign
		r.CampaignID = w.campaign
		waiting, err := payment.RefundsWaitingForOperator(w.t.Context(), w.db, uuid.Nil, 10)
		var all []refunds.ByHand
		for _, one := range waiting {
			if one.CampaignID == w.campaign {
				all = append(all, w.shown(one.ID))
			}
		}
		return w.or(said(service(w).ResolveCampaign(w.t.Context(), r, access.Everything(), all, "operator:ops", "by bank")), err)
	case "counts": // of a campaign that was cancelled
		servers.Exec(w.t, w.db, `UPDATE refunds SET reason = 'campaign-cancelled'`)
		counts, err := payment.CountCancelledRefunds(w.t.Context(), w.db, w.campaign)
		return w.or(fmt.Sprintf("%d under way, %d for people", counts.UnderWay, counts.ForPeople), err)
	case "timeline":
		return w.timeline()
	default:
		w.t.Fatalf("%s?", command)
	}
	return ""
}

// shown is a refund as a form shows it.
func (w *world) shown(id uuid.UUID) refunds.ByHand {
	return refunds.ByHand{ID: id, Amount: servers.Value[money.Amount](w.t, w.db, `SELECT coalesce((SELECT `+payment.DueSQL+` FROM refunds r WHERE id = $1), 0)`, id)}
}

// says is an error of the provider: KIND, KIND/CODE or KIND/CODE/MESSAGE.
func says(text string) *payprovider.Error {
	kind, code, _ := strings.Cut(text, "/")
	code, message, _ := strings.Cut(code, "/")
	if code == "" {
		message = kind
	}
	return &payprovider.Error{Kind: payprovider.ErrorKind(kind), Call: "refund", Code: code, Message: message}
}

// or returns a text, or that there is an error.
func (w *world) or(text string, err error) string {
	w.t.Helper()
	if err != nil {
		w.t.Error(err)
	}
	return text
}

// now says what the last command has said, what was called since, and what is.
func (w *world) now(said string) string {
	w.t.Helper()
	var parts []string
	ours, others := w.all()
	for _, r := range ours {
		parts = append(parts, w.text(r))
	}
	said = w.trim(said)
	for _, call := range w.provider.Called() {
		said += " " + call
	}
	what := strings.Join(parts, ", ")
	for _, r := range others {
		what += " + " + w.text(r)
	}
	p, err := purchase.Get(w.t.Context(), w.db, access.Everything(), w.bought)
	state := w.or(string(p.State), err)
	if back := w.provider.Returned(); back != 0 {
		state += fmt.Sprintf(", %d back", back)
	}
	if n := w.forOperator(); n != 0 {
		state += fmt.Sprintf(", %d for operators", n)
	}
	if n := servers.Counted(w.t, w.registry, "triprize_refunds_paid_twice_total", ""); n != 0 {
		state += fmt.Sprintf(", rings %g times", n)
	}
	return strings.TrimSpace(said + "; " + what + "; " + state)
}

// text is a refund with all that is not as usual.
func (w *world) text(r payment.Refund) string {
	text := fmt.Sprintf("%d %s", r.Amount, r.State)
	add := func(is bool, word string) {
		if is {
			text += " " + word
		}
	}
	add(r.ProviderID != nil, w.trim(postgres.ValueOf(r.ProviderID)))
	add(r.DueAt != nil, "due")
	add(r.Stuck, "stuck")
	add(r.LeaseUntil != nil, "leased")
	add(r.Faults > 0, fmt.Sprint("faults=", r.Faults))
	add(r.Failure != nil, fmt.Sprintf("(%s)", w.trim(postgres.ValueOf(r.Failure))))
	add(r.ResolvedBy != nil, "by "+postgres.ValueOf(r.ResolvedBy)+": "+postgres.ValueOf(r.ResolveReason))
	add(r.FinishedAt == nil && r.State.Finished(), "finished is wrong")
	add(r.FinishedAt != nil && !r.State.Finished(), "finished")
	return text
}

// trim takes the ids of this world away.
func (w *world) trim(text string) string {
	return strings.NewReplacer("_"+w.intent, "", " "+w.id.String(), "").Replace(text)
}

// forOperator counts the refunds that wait for an operator.
func (w *world) forOperator() int {
	w.t.Helper()
	n, err := payment.CountRefundsForOperator(w.t.Context(), w.db)
	servers.NoError(w.t, err)
	list, err := payment.RefundsWaitingForOperator(w.t.Context(), w.db, uuid.Nil, 10)
	if err != nil || len(list) != n {
		w.t.Errorf("%d wait, and listed are %v, %v", n, list, err)
	}
	return n
}

// timeline returns the steps of the refunds.
func (w *world) timeline() string {
	w.t.Helper()
	steps, err := payment.StepsOf(w.t.Context(), w.db, []uuid.UUID{w.bought})
	var all []string
	for _, s := range steps {
		if !strings.Contains(s.Event, "refund") || s.Event == "refund-requested" { // by the cancellation
			continue
		}
		if s.Detail != nil {
			s.Event += "(" + *s.Detail + ")"
		}
		all = append(all, s.Event)
	}
	return w.or(w.trim(strings.Join(all, " ")), err)
}

// all returns the refunds of the purchase: ours, and those out of band.
func (w *world) all() (ours, others []payment.Refund) {
	w.t.Helper()
	of, err := payment.RefundsOfPurchases(w.t.Context(), w.db, []uuid.UUID{w.bought})
	servers.NoError(w.t, err)
	for _, r := range of[w.bought] {
		if r.Reason == payment.RefundOutOfBand {
			others = append(others, r)
		} else {
			ours = append(ours, r)
		}
	}
	return ours, others
}

// cancel cancels positions of the purchase, or all that are left: its refund is worked on now.
func (w *world) cancel(positions string) string {
	w.t.Helper()
	var some []shape.Position
	if n, err := strconv.Atoi(positions); err == nil {
		some, w.kept = w.kept[:n], w.kept[n:]
	}
	refs := fixture.Accept(w.t, w.db, fixture.CancelRequestOf(w.t, w.campaign, sale.Cancellation{PurchaseID: w.bought, Positions: some, By: "app:test"}))
	report, err := fixture.Seller(w.db).Cancel(w.t.Context(), refs, sale.WaitForCampaign)
	if err != nil || len(report.Due) != 1 {
		w.t.Fatalf("%+v, %v", report, err)
	}
	w.id = report.Due[0].ID
	return ""
}

// hear records a refund at the provider, as the worker of its payment does, or of another refund.
func (w *world) hear(at int) {
	w.t.Helper()
	r := w.provider.Refunds[at]
	err := postgres.InTx(w.t.Context(), w.db, func(tx pgx.Tx) error {
		if _, err := payment.Lock(w.t.Context(), tx, w.bought); err != nil {
			return err
		}
		if _, err := payment.WakeRefunds(w.t.Context(), tx, []uuid.UUID{w.bought}, nil); err != nil {
			return err
		}
		_, err := refunds.RecordOutOfBand(w.t.Context(), tx, []refunds.OutOfBand{{ProviderID: r.ID, PurchaseID: w.bought, Amount: r.Amount, Currency: r.Currency, State: payment.RefundStateOf(r.Status)}})
		return err
	})
	servers.NoError(w.t, err)
}

func (w *world) refund() payment.Refund { return fixture.Refund(w.t, w.db, w.id) }

func (w *world) sql(statement string) {
	w.t.Helper()
	servers.Exec(w.t, w.db, statement, w.id)
}
