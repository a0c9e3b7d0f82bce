package cards_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/money"
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
	campaignID, id := uuidv7.New(), uuidv7.New()
	ref := fixture.Accept(b.t, b.db, fixture.PurchaseRequest(b.t, campaignID, "buyer", 0, 1))[0]
	p := payment.Payment{PurchaseID: id, JobID: ref.ID, CampaignID: campaignID, Amount: money.Amount(1200), Currency: "JPY", PaymentMethod: method}
	err := postgres.InTx(context.Background(), b.db, func(tx pgx.Tx) error {
		var batch pgx.Batch
		payment.QueueInsert(&batch, []payment.New{{Payment: p, Reserved: time.Hour}}, time.Hour, time.Hour, time.Hour)
		batch.Queue(`INSERT INTO purchases (id, campaign_id, user_id, client, job_id, amount, currency, payment_method, state, nonce)
			VALUES ($1, $2, 'buyer', 'shop', $3, 1200, 'JPY', 'card', 'pending', '\x00112233445566778899aabbccddeeff')`, id, campaignID, ref.ID)
		job.QueueBegun(&batch, []uuid.UUID{ref.ID}, []uuid.UUID{id})
		return tx.SendBatch(context.Background(), &batch).Close()
	})
	if err != nil {
		b.t.Fatal(err)
	}
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
	if err != nil {
		b.t.Fatal(err)
	}
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

// finalizePayments decides as the sale does what becomes of a payment whose end is known.
func (b *bench) finalize(id uuid.UUID) {
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
	return fixture.Job(b.t, b.db, b.get(id).JobID)
}

func (b *bench) purchaseState(id uuid.UUID) string {
	b.t.Helper()
	return servers.Value[string](b.t, b.db, `SELECT state FROM purchases WHERE id = $1`, id)
}

// steps returns the timeline of a payment.
func (b *bench) steps(id uuid.UUID) (events []string) {
	b.t.Helper()
	steps, err := payment.StepsOf(context.Background(), b.db, []uuid.UUID{id})
	if err != nil {
		b.t.Fatal(err)
	}
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
