package sale_test

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

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

var at = fixture.At

// forAll waits for campaigns and wallets until a test lets them go.
var forAll = job.LockWait{Campaign: time.Minute, Wallets: servers.Patience}

// campaignOn has a test run in parallel, with a campaign in a database of its own.
func campaignOn(t *testing.T, baseLength int) (db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	t.Parallel()
	db = servers.DB(t)
	return db, fixture.Campaign(t, db, fixture.Draft(baseLength))
}

// outcome is what a job has come to: the positions that it got or gave back, or why it was refused, with
// what is named of its request.
func outcome(t *testing.T, j job.Job) string {
	t.Helper()
	var words []string
	switch {
	case j.Problem != nil:
		words = append(words, string(j.Problem.Code))
		for _, f := range j.Problem.Fields {
			words = append(words, f.Pointer)
		}
	case !j.State.Final():
		words = append(words, string(j.State))
	default:
		r := resultOf(t, j)
		if r.State != "" {
			words = append(words, string(r.State))
		}
		for _, p := range r.Positions {
			words = append(words, fmt.Sprintf("%d,%d", p.Layer, p.Column))
		}
	}
	return strings.Join(words, " ")
}

// expect compares outcomes of jobs; "any 2" are two positions.
func expect(t *testing.T, what string, jobs []job.Job, want ...string) {
	t.Helper()
	for i, j := range jobs {
		got := outcome(t, j)
		if j.Problem == nil && strings.HasPrefix(want[i], "any ") {
			got = fmt.Sprint("any ", len(strings.Fields(got)))
		}
		if got != want[i] {
			t.Errorf("%s, job %d: %s, want %s: %+v", what, i, got, want[i], j.Problem)
		}
	}
}

// resultOf returns the result of a job.
func resultOf(t *testing.T, j job.Job) (r sale.Result) {
	t.Helper()
	if err := json.Unmarshal(j.Result, &r); err != nil {
		t.Errorf("%s: %v, %+v", j.State, err, j.Problem)
	}
	return r
}

// expectCodes wants jobs to be final, with these codes; an empty one is a success.
func expectCodes(t *testing.T, db *pgxpool.Pool, refs []job.Ref, want ...fault.Code) {
	t.Helper()
	for i, ref := range refs {
		j := fixture.Job(t, db, ref.ID)
		var got fault.Code
		if j.Problem != nil {
			got = j.Problem.Code
		}
		if !j.State.Final() || got != want[i] {
			t.Errorf("job %d: %s, %q; want %q", i, j.State, got, want[i])
		}
	}
}

// sell sells, and waits for the campaign.
func sell(t *testing.T, seller *sale.Seller, refs ...job.Ref) sale.Report {
	t.Helper()
	report, err := seller.Sell(t.Context(), refs, sale.WaitForCampaign)
	if err != nil {
		t.Error(err)
	}
	return report
}

// complete completes cancellations in one transaction and returns the report.
func complete(t *testing.T, seller *sale.Seller, refs ...job.Ref) sale.Report {
	t.Helper()
	report, err := seller.Cancel(t.Context(), refs, forAll)
	if err != nil {
		t.Error(err)
	}
	return report
}

// cancel asks for a cancellation, completes it and returns its job.
func cancel(t *testing.T, db *pgxpool.Pool, request job.Request) job.Job {
	t.Helper()
	ref := fixture.Accept(t, db, request)[0]
	complete(t, fixture.Seller(db), ref)
	return fixture.Job(t, db, ref.ID)
}

// byOperator asks to cancel a purchase as operators do: at any time.
func byOperator(t *testing.T, id, bought uuid.UUID) job.Request {
	t.Helper()
	return fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought, By: "operator:office", AnyTime: true})
}

// partOf asks to cancel positions of a purchase.
func partOf(t *testing.T, campaignID, bought uuid.UUID, positions ...shape.Position) job.Request {
	t.Helper()
	return fixture.CancelRequestOf(t, campaignID, sale.Cancellation{PurchaseID: bought, Positions: positions, By: "app:test", Reason: "a friend is ill"})
}

// refused fails the test unless a job was refused with state-conflict for a
// reason with these words.
func refused(t *testing.T, what string, j job.Job, words string) {
	t.Helper()
	if j.State != job.Failed || j.Problem.Code != fault.StateConflict || !strings.Contains(j.Problem.Detail, words) {
		t.Errorf("%s: %s, %+v; want the words %q", what, j.State, j.Problem, words)
	}
}

// takeBack asks to cancel a purchase that is being paid, which waits for the payment.
func takeBack(t *testing.T, db *pgxpool.Pool, id, bought uuid.UUID) (back job.Ref) {
	t.Helper()
	back = fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))[0]
	report := complete(t, fixture.Seller(db), back)
	if j := fixture.Job(t, db, back.ID); len(report.Outcomes) != 0 || j.State != job.Queued || j.PurchaseID == nil || *j.PurchaseID != bought {
		t.Fatalf("the cancellation does not wait: %+v, %+v", report, j.Problem)
	}
	return back
}

// endCampaign cancels a campaign, as far as sales and payments see it.
func endCampaign(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`, id)
}

// setPayment changes a payment by hand.
func setPayment(t *testing.T, db *pgxpool.Pool, id uuid.UUID, set string) {
	t.Helper()
	servers.Exec(t, db, `UPDATE payments SET `+set+` WHERE purchase_id = $1`, id)
}

func purchaseOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) purchase.Purchase {
	t.Helper()
	p, err := purchase.Get(t.Context(), db, access.Everything(), id)
	servers.NoError(t, err)
	return p
}

// positionsOf returns the positions that a purchase has.
func positionsOf(p purchase.Purchase) (all []shape.Position) {
	for _, item := range p.Items {
		all = append(all, item.Position)
	}
	return all
}

func campaignOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) campaign.Campaign {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	servers.NoError(t, err)
	return c
}

func counts(t *testing.T, db *pgxpool.Pool, id uuid.UUID) campaign.Counts {
	t.Helper()
	return campaignOf(t, db, id).Counts
}

func expectState(t *testing.T, db *pgxpool.Pool, id uuid.UUID, want campaign.State) {
	t.Helper()
	if c := campaignOf(t, db, id); c.State != want {
		t.Errorf("the campaign is %s, wanted %s", c.State, want)
	}
}

// stepsOf returns the events of a purchase.
func stepsOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) string {
	t.Helper()
	steps, err := payment.StepsOf(t.Context(), db, []uuid.UUID{id})
	servers.NoError(t, err)
	events := make([]string, len(steps))
	for i, s := range steps {
		events[i] = s.Event
	}
	return strings.Join(events, " ")
}

// now is what is stored about a card purchase.
type now struct {
	Purchase purchase.State
	Payment  payment.Phase
	Job      job.State
	Code     fault.Code           // of the job; empty: it did not fail
	Refund   payment.RefundReason // empty: there is none
	Reserved int                  // positions of its buyer
	Sold     int
}

var completed = now{purchase.Completed, payment.Settled, job.Succeeded, "", "", 0, 2}

// nowOf reads what is stored about a card purchase.
func nowOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID, ref job.Ref) (n now) {
	t.Helper()
	p, j := purchaseOf(t, db, id), fixture.Job(t, db, ref.ID)
	n = now{Purchase: p.State, Payment: fixture.Payment(t, db, id).Phase, Job: j.State}
	if j.Problem != nil {
		n.Code = j.Problem.Code
	}
	err := db.QueryRow(t.Context(), `
		SELECT (SELECT coalesce(max(reason), '') FROM refunds WHERE purchase_id = $1 AND amount = $2 AND method = 'card' AND state = 'open' AND due_at IS NOT NULL),
		       count(*) FILTER (WHERE state = 'reserved'), count(*) FILTER (WHERE state = 'sold') FROM positions WHERE purchase_id = $1`, id, p.Amount).
		Scan(&n.Refund, &n.Reserved, &n.Sold)
	servers.NoError(t, err)
	return n
}

// spied begins transactions of which a test sees each batch before it is sent, and the commit.
type spied struct {
	postgres.Beginner
	before  func(tx pgx.Tx, n int, b *pgx.Batch) // n counts the batches of the transaction from 1
	commits func(tx pgx.Tx)
}

// Begin implements postgres.Beginner.
func (s spied) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := s.Beginner.Begin(ctx)
	return &spiedTx{Tx: tx, by: s}, err
}

type spiedTx struct {
	pgx.Tx
	by spied
	n  int
}

// SendBatch implements pgx.Tx.
func (t *spiedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.n++; t.by.before != nil {
		t.by.before(t.Tx, t.n, b)
	}
	return t.Tx.SendBatch(ctx, b)
}

// Commit implements pgx.Tx.
func (t *spiedTx) Commit(ctx context.Context) error {
	if t.by.commits != nil {
		t.by.commits(t.Tx)
	}
	return t.Tx.Commit(ctx)
}

// operations are the transactions of a Seller.
var operations = map[string]func(s *sale.Seller, ctx context.Context, refs []job.Ref, wait job.LockWait) (sale.Report, error){
	"sell": (*sale.Seller).Sell, "cancel": (*sale.Seller).Cancel, "finalize": (*sale.Seller).SettlePayments,
}
