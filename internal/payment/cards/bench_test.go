package cards_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/provider"
	"triprize/internal/testkit/servers"
)

// teller is a bench whose first payment goes through a story.
type teller struct {
	*bench
	id    uuid.UUID
	first lease.Item // as it was made
	ctx   context.Context
	stop  func() // the process
}

// stories lets happen what each says. A line is commands, and what is then:
//
//	run; bank requires_action requires_capture; run → finalize fetch capture; captured due
//
// The words are: what the last command has said, the calls since the last line with their keys, the payment, and of its
// job and its purchase what is not as usual. See [teller.do] and [teller.now]. A story begins with the payment method.
func stories(t *testing.T, all map[string]string) {
	t.Helper()
	for name, story := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			method, story, _ := strings.Cut(strings.TrimSpace(story), ": ")
			b := &teller{bench: newBench(t)}
			b.ctx, b.stop = context.WithCancel(context.Background())
			b.id = b.reserve(method)
			b.first = b.ref(b.id)
			provider.Tell(t, story, b.do, b.now)
			if len(b.sim.Broken) > 0 {
				t.Error(b.sim.Broken)
			}
		})
	}
}

// do carries out one command, and returns what it says.
func (b *teller) do(command string) string {
	b.t.Helper()
	words := append(strings.Fields(command), "", "", "")
	_, rest, _ := strings.Cut(command, " ")
	switch words[0] {
	case "run": // by a worker; "old": as the payment was made
		return b.lead(words[1] == "old")
	case "stale": // a lease ends only when a test says so
		b.endLease(b.id)
	case "stop": // the process of the worker
		b.stop()
	case "time":
		b.endTime(b.id)
	case "cancel":
		b.giveUp(b.id)
	case "finalize": // the sale
		b.settle(b.id)
	case "wake":
		if _, err := payment.Wake(b.t.Context(), b.db, []uuid.UUID{b.id}); err != nil {
			b.t.Error(err)
		}
	case "due": // as a sweep finds it: nothing else is
		due, err := payment.Leases.TakeDue(b.t.Context(), b.db, time.Hour, 10)
		if err != nil || len(due) != 1 || due[0].ID != b.id {
			b.t.Errorf("due are %v, %v", due, err)
		}
	case "expire": // as the sweep does
		var expired []payment.Ref
		err := postgres.InTx(b.t.Context(), b.db, func(tx pgx.Tx) (err error) { expired, err = payment.Expire(b.t.Context(), tx, 10); return err })
		if err != nil || len(expired) != 1 || expired[0].PurchaseID != b.id {
			b.t.Errorf("over are %v, %v", expired, err)
		}
	case "bank": // or its buyer, changes the intent
		b.sim.Move(b.id.String(), payprovider.IntentStatus(words[1]), payprovider.IntentStatus(words[2]))
	case "sql":
		b.exec(`UPDATE payments SET `+rest+` WHERE purchase_id = $1`, b.id)
	case "settings": // no lease covers a call
		b.settings.CallTimeout = b.settings.Lease
		b.runner = b.newRunner()
	case "fault": // CALL KIND[/CODE], "once", "after" its effect
		kind, code, _ := strings.Cut(words[2], "/")
		b.hook(words[1], command, func() error { return provider.Failed(payprovider.ErrorKind(kind), code) })
	case "die": // CALL
		b.hook(words[1], command+" once", func() error { panic(died{}) })
	case "during": // CALL: other commands, with commas
		first, rest, _ := strings.Cut(command, ": ")
		b.hook(strings.TrimSuffix(words[1], ":"), first+" once", func() error {
			for one := range strings.SplitSeq(rest, ", ") {
				b.do(one)
			}
			return nil
		})
	case "stored": // a fault, under keys
		for _, key := range words[1:] {
			if call, of, ok := strings.Cut(key, "#"); ok {
				prefix := map[string]string{"create": "pi"}[call] + strings.TrimPrefix(call, "create")
				b.sim.Store(call, strings.TrimSuffix(prefix+":"+b.id.String()+":"+of, ":"), nil, provider.Failed(payprovider.KindUnknown, "stored"))
			}
		}
	case "alter": // what the provider says
		b.sim.Alter = map[string]func(in *payprovider.Intent){
			"amount":   func(in *payprovider.Intent) { in.Amount++ },
			"currency": func(in *payprovider.Intent) { in.Currency = "USD" },
			"mode":     func(in *payprovider.Intent) { in.Livemode = true },
			"purchase": func(in *payprovider.Intent) { in.Metadata = map[string]string{"purchase_id": "another"} },
			"captured": func(in *payprovider.Intent) { in.Status, in.Received = payprovider.Succeeded, in.Amount-1 },
		}[words[1]]
	case "gone": // the intent
		b.sim.Lose(*b.get(b.id).IntentID)
	case "there": // is an intent, with a status
		p := b.get(b.id)
		in := payprovider.Intent{ID: *p.IntentID, Status: payprovider.IntentStatus(words[1]), Amount: p.Amount, Currency: p.Currency, Metadata: map[string]string{"purchase_id": b.id.String()}}
		if in.Status == payprovider.Succeeded {
			in.Received = p.Amount
		}
		b.sim.Put(in)
	case "mended": // all that was wrong
		b.sim.Mend()
	case "try": // another payment method
		if why := b.try(b.id, words[1]); why != nil {
			what, _, _ := strings.Cut(why.Detail, " ended at ")
			return string(why.Code) + ": " + what
		}
	case "resolve":
		var due []lease.Item
		done, err := commands(b.db, b.sim, &due).Resolve(b.t.Context(), fixture.Command(job.KindPaymentResolve), b.id, says(b.get(b.id), payment.Finding(words[1])))
		if err := fixture.Problem(done, err); err != nil {
			return err.Error()
		}
	case "retry":
		var due []lease.Item
		done, err := commands(b.db, b.sim, &due).Retry(b.t.Context(), fixture.Command(job.KindPaymentRetry), b.id)
		if err != nil || done.Job.Problem != nil {
			return fmt.Sprint(done.Job.Problem.Code, " ", err)
		}
		var body struct{ Phase string }
		if err := json.Unmarshal(done.Job.Result, &body); err != nil || len(due) != 1 || due[0] != b.ref(b.id) {
			b.t.Errorf("dispatched are %v, %v", due, err)
		}
		return "answered " + body.Phase
	case "listen": // an endpoint of the client
		b.exec(`INSERT INTO webhook_endpoints (id, client, url, events) VALUES (gen_random_uuid(), 'shop', 'https://shop.example', '{purchase.*}')`)
	case "told":
		return servers.Value[string](b.t, b.db, `SELECT coalesce(string_agg(type, ' '), '') FROM webhook_events`)
	case "steps":
		return strings.Join(b.steps(b.id), " ")
	default:
		b.t.Fatalf("%s?", command)
	}
	return ""
}

// hook lets something happen in calls, as a command says.
func (b *teller) hook(call, command string, do func() error) {
	b.sim.Hook(provider.Hook{Call: call, Once: strings.Contains(command, " once"), After: strings.Contains(command, " after"), Do: func(string) error { return do() }})
}

// lead lets a worker lead the payment, until it dies.
func (b *teller) lead(old bool) (said string) {
	b.t.Helper()
	item := b.first
	if !old {
		b.endLease(b.id)
		item = b.ref(b.id)
	}
	result, dead, err := b.untilItDies(b.ctx, item)
	if dead {
		return "died"
	}
	if err != nil {
		b.t.Error(err)
	}
	if said = string(result.Outcome); result.Announce {
		said += "!"
	}
	return said
}

// now says what the last command has said, what was called since, and what is.
func (b *teller) now(said string) string {
	b.t.Helper()
	text := said
	for _, call := range b.sim.Called() {
		text += " " + call
	}
	p, j := b.get(b.id), b.jobOf(b.id)
	text += "; " + string(p.Phase)
	add := func(is bool, word string) {
		if is {
			text += " " + word
		}
	}
	add(p.Ending != nil, string(deref(p.Ending)))
	paid := p.Phase == payment.Captured || p.Phase == payment.Settled || p.Phase == payment.RefundDue
	add(paid && p.Received != p.Amount && !p.PaidOutOfBand() || !paid && p.Received != 0, fmt.Sprint("received=", p.Received))
	add(p.Tries > 0, fmt.Sprintf("tries=%d with %s", p.Tries, p.PaymentMethod))
	add(p.Attempt > 1, fmt.Sprint("attempt=", p.Attempt))
	add(p.Decline != nil, "declined="+declineOf(p.Decline))
	add(p.Uncancellable, "uncancellable")
	add(p.DueAt != nil, "due")
	add(p.LeaseUntil != nil, "leased")
	add(p.Faults > 0, fmt.Sprint("faults=", p.Faults))
	add(p.WaitingFor != nil, "waits="+string(deref(p.WaitingFor)))
	add(p.WaitsFor() == payment.WaitsForOperator, "("+strings.ReplaceAll(deref(p.Reason()), "_"+b.id.String(), "")+")")
	add(p.ResolvedAs != nil, "resolved="+string(deref(p.ResolvedAs)))
	add((p.FinishedAt != nil) != p.Phase.Final(), "finished is wrong")
	intents, confirmed := b.sim.Of(b.id.String())
	add(len(intents) > 1, fmt.Sprint("intents=", len(intents)))
	add(confirmed > 1, "two intents are confirmed")
	if state := b.purchaseState(b.id); j.State != job.Queued || j.Progress != nil || state != "pending" {
		text += "; job " + string(j.State) + b.progressOf(j, p) + ", " + state
	}
	return strings.TrimSpace(text)
}

func declineOf(d *payprovider.Decline) string {
	if d == nil {
		return ""
	}
	text := strings.TrimSuffix(d.Code+"/"+d.DeclineCode, "/")
	if d.Message != "" && d.Message != "simulated" {
		text += " (" + d.Message + ")"
	}
	return text
}

// progressOf is what a job asks for or waits for. Both end when the payment says.
func (b *teller) progressOf(j job.Job, p payment.Payment) (text string) {
	b.t.Helper()
	if j.Progress == nil {
		return ""
	}
	if a := j.Progress.NextAction; a != nil {
		text += " " + string(a.Type) + strings.ReplaceAll(strings.TrimPrefix(a.URL, "https://bank.example/pi"), "_"+b.id.String(), "")
		if !p.Phase.AwaitsBuyer() || p.Over {
			return text
		}
		if !a.ExpiresAt.Equal(p.OverAt()) || (a.Decline == nil) != (a.URL != "") || a.Decline != nil && *a.Decline != *p.Decline {
			b.t.Errorf("the job asks for %+v, and the payment is over at %s: %+v", a, p.OverAt(), p.Decline)
		}
		if p.DueAt == nil || p.Phase == payment.CardDeclined && p.DueAt.Before(p.OverAt().Add(-payment.TryWithin/2)) { // the worker knows the database's clock about: one that runs it too early waits again
			b.t.Errorf("it is over at %s, and due at %v", p.OverAt(), p.DueAt)
		}
	}
	if w := j.Progress.Waiting; w != nil {
		text += " waits: " + w.Reason
		if p.WaitingFor != nil && (w.RetryAt.IsZero() || w.Reason != p.WaitingFor.Text()) {
			b.t.Errorf("the job waits for %+v", w)
		}
	}
	return text
}

func TestMain(m *testing.M) { servers.Main(m) }

// bench is a runner, a provider and a database with payments.
type bench struct {
	t        *testing.T
	db       *pgxpool.Pool
	sim      *provider.Double
	runner   *cards.Runner
	settings cards.Settings
}

// newBench returns a bench whose leases and deadlines end only when a test ends them.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, db: servers.DB(t), sim: provider.New(),
		settings: cards.Settings{Lease: time.Hour, CallTimeout: servers.Patience, Recheck: time.Hour, ReturnURL: "https://app.example/done"}}
	b.runner = b.newRunner()
	return b
}

func (b *bench) newRunner() *cards.Runner {
	return cards.NewRunner(b.db, b.sim, b.settings, servers.Logger(b.t), prometheus.NewRegistry())
}

// reserve stores what a sale leaves behind that waits for a card.
func (b *bench) reserve(method string) uuid.UUID {
	b.t.Helper()
	campaignID := uuidv7.New()
	id := fixture.Accept(b.t, b.db, fixture.PurchaseRequest(b.t, campaignID, "buyer", 0, 1))[0].ID // also of its purchase
	p := payment.Payment{PurchaseID: id, CampaignID: campaignID, Amount: money.Amount(1200), Currency: "JPY", PaymentMethod: method}
	err := postgres.InTx(context.Background(), b.db, func(tx pgx.Tx) error {
		var batch pgx.Batch
		payment.QueueInsert(&batch, []payment.New{{Payment: p, Reserved: time.Hour}}, time.Hour, time.Hour, time.Hour)
		batch.Queue(`INSERT INTO purchases (id, campaign_id, user_id, client, amount, currency, payment_method, state, nonce)
			VALUES ($1, $2, 'buyer', 'shop', 1200, 'JPY', 'card', 'pending', '\x00112233445566778899aabbccddeeff')`, id, campaignID)
		job.QueueBegun(&batch, []uuid.UUID{id}, []uuid.UUID{id})
		return tx.SendBatch(context.Background(), &batch).Close()
	})
	servers.NoError(b.t, err)
	return id
}

func (b *bench) get(id uuid.UUID) payment.Payment {
	b.t.Helper()
	p, ok, err := payment.Get(context.Background(), b.db, id)
	if err != nil || !ok {
		b.t.Fatal(ok, err)
	}
	return p
}

// run lets a worker lead a payment as it is now. An earlier worker's lease is over.
func (b *bench) run(id uuid.UUID) cards.Result {
	b.t.Helper()
	b.endLease(id)
	p := b.get(id)
	result, err := b.runner.Run(context.Background(), p.Ref().Item())
	servers.NoError(b.t, err)
	return result
}

// want runs a payment and checks what became of it.
func (b *bench) want(id uuid.UUID, outcome cards.Outcome, phase payment.Phase) payment.Payment {
	b.t.Helper()
	result := b.run(id)
	p := b.get(id)
	if result.Outcome != outcome || p.Phase != phase {
		b.t.Fatalf("the run %s and the payment is %s, not %s and %s; waits for: %v", result.Outcome, p.Phase, outcome, phase, p.WaitingFor)
	}
	return p
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	servers.Exec(b.t, b.db, sql, args...)
}

// endLease makes the lease of a worker that has died be over.
func (b *bench) endLease(id uuid.UUID) {
	b.t.Helper()
	b.exec(`UPDATE payments SET lease_until = clock_timestamp() - interval '1 second' WHERE purchase_id = $1 AND lease_until IS NOT NULL`, id)
}

// endTime makes the deadline of a reservation be over.
func (b *bench) endTime(id uuid.UUID) {
	b.t.Helper()
	b.exec(`UPDATE payments SET deadline = clock_timestamp() - interval '1 second' WHERE purchase_id = $1`, id)
}

// giveUpFor gives a payment up as a cancellation does: its worker is fenced.
func (b *bench) giveUp(id uuid.UUID) {
	b.t.Helper()
	b.exec(`UPDATE payments SET phase = 'expiring', ending = 'cancelled', cancel_job = gen_random_uuid(), cancelled_by = 'app:test',
		version = version + 1, lease_until = NULL, due_at = clock_timestamp()
		WHERE purchase_id = $1 AND phase IN ('reserved', 'creating', 'confirming', 'action', 'declined', 'processing')`, id)
}

// settle decides as the sale does what becomes of a payment whose end is known.
func (b *bench) settle(id uuid.UUID) {
	b.t.Helper()
	b.exec(`UPDATE payments SET version = version + 1, lease_until = NULL,
		due_at = CASE WHEN phase = 'expiring' OR wakes > 0 AND due_at <= clock_timestamp() THEN clock_timestamp() END,
		phase = CASE WHEN phase = 'captured' AND ending IS NULL THEN 'settled' WHEN phase = 'captured' THEN 'refund_due'
		             WHEN phase = 'ended' THEN 'cancelled' ELSE 'late' END,
		finished_at = CASE WHEN phase IN ('captured', 'ended') THEN clock_timestamp() END
		WHERE purchase_id = $1 AND (phase IN ('captured', 'ended') OR phase = 'expiring' AND uncancellable AND deadline <= clock_timestamp())`, id)
}

func (b *bench) jobOf(id uuid.UUID) job.Job {
	b.t.Helper()
	return fixture.Job(b.t, b.db, b.get(id).PurchaseID)
}

func (b *bench) purchaseState(id uuid.UUID) string {
	b.t.Helper()
	return servers.Value[string](b.t, b.db, `SELECT state FROM purchases WHERE id = $1`, id)
}

// steps returns the timeline of a payment.
func (b *bench) steps(id uuid.UUID) (events []string) {
	b.t.Helper()
	steps, err := payment.StepsOf(context.Background(), b.db, []uuid.UUID{id})
	servers.NoError(b.t, err)
	for _, s := range steps {
		events = append(events, s.Event)
	}
	return events
}

func (b *bench) ref(id uuid.UUID) lease.Item {
	b.t.Helper()
	p := b.get(id)
	return p.Ref().Item()
}
