package cards_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// try has the buyer bring another payment method, and returns why that is refused.
func (b *bench) try(id uuid.UUID, method string) *job.Problem {
	b.t.Helper()
	r := request(job.KindPaymentTry)
	r.UserID = "buyer"
	var due []lease.Item
	done, err := commands(b.db, &due).Try(b.t.Context(), r, id, payment.Buyer{Client: "shop", ID: "buyer"}, method, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if p := b.get(id); done.Job.Problem == nil && (len(due) != 1 || due[0] != p.Ref().Item() || p.PaymentMethod != method || p.LeaseUntil != nil) {
		b.t.Fatalf("due are %+v, of %+v", due, p)
	}
	return done.Job.Problem
}

// wantTried brings another payment method.
func (b *bench) wantTried(id uuid.UUID, method string) {
	b.t.Helper()
	if why := b.try(id, method); why != nil {
		b.t.Fatal(why)
	}
	if j := b.jobOf(id); j.State != job.Queued || j.Progress != nil || b.purchaseState(id) != "pending" {
		b.t.Fatalf("the job is %s with %+v, the purchase is %s", j.State, j.Progress, b.purchaseState(id))
	}
}

// wantDeclined runs a payment and checks that its job asks for another payment method.
func (b *bench) wantDeclined(id uuid.UUID, code string) payment.Payment {
	b.t.Helper()
	result := b.run(id)
	p, j := b.get(id), b.jobOf(id)
	if result.Outcome != cards.Waits || p.Phase != payment.CardDeclined || !result.Announce || p.Decline == nil || p.Decline.DeclineCode != code {
		b.t.Fatalf("%+v, the payment is %s, %+v", result, p.Phase, p.Decline)
	}
	if p.DeclinedUntil == nil || !p.OverAt().Equal(*p.DeclinedUntil) || p.DueAt == nil ||
		p.DueAt.Before(p.OverAt().Add(-payment.TryWithin/2)) { // the worker knows the database's clock about: one that runs it too early waits again
		b.t.Fatalf("declined until %v, over at %s, due at %v", p.DeclinedUntil, p.OverAt(), p.DueAt)
	}
	var a *job.NextAction
	if j.Progress != nil {
		a = j.Progress.NextAction
	}
	if j.State != job.AwaitingAction || a == nil || a.Type != job.ActionPaymentMethod || a.URL != "" || *a.Decline != *p.Decline || !a.ExpiresAt.Equal(p.OverAt()) ||
		b.purchaseState(id) != "awaiting_action" {
		b.t.Fatalf("the job is %s with %+v, the purchase is %s", j.State, a, b.purchaseState(id))
	}
	return p
}

func TestADeclinedCardIsFollowedByAnotherOnTheSameIntent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settings.Recheck = time.Second // nobody asks about it meanwhile
	b.runner = b.newRunner()
	id := b.reserve("pm_declined_once")
	b.wantDeclined(id, "insufficient_funds")
	b.wantTried(id, "pm_card_visa")
	if p := b.want(id, cards.Conclude, payment.Captured); p.Decline != nil || p.Tries != 1 || len(b.sim.made) != 1 {
		t.Errorf("%d tries, %+v, intents %v", p.Tries, p.Decline, b.sim.made)
	}
	if got := strings.Join(b.sim.called(), " "); got != "create confirm fetch confirm capture" {
		t.Errorf("called %s", got)
	}
	if got := strings.Join(b.steps(id), " "); got != "payment-started declined payment-method-changed authorized captured" {
		t.Errorf("steps %s", got)
	}
}

func TestADeclineThatWasNoneIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_declined")
	b.wantDeclined(id, "generic_decline")
	b.sim.move(id.String(), payprovider.RequiresPaymentMethod, payprovider.RequiresCapture)
	if p := b.want(id, cards.Conclude, payment.Captured); p.Decline != nil {
		t.Errorf("%+v", p.Decline)
	}
}

func TestAFailedAuthenticationIsADeclineToo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_action")
	b.want(id, cards.Waits, payment.Action)
	b.exec(`INSERT INTO webhook_endpoints (id, client, url, events) VALUES (gen_random_uuid(), 'shop', 'https://shop.example', '{purchase.*}')`)
	b.sim.move(id.String(), payprovider.RequiresAction, payprovider.RequiresPaymentMethod)
	b.wantDeclined(id, "")
	if told := servers.Value[string](t, b.db, `SELECT string_agg(type, ' ') FROM webhook_events`); told != "purchase.awaiting_action" {
		t.Errorf("its app hears of %s", told)
	}
	b.wantTried(id, "pm_action")
	if p := b.want(id, cards.Waits, payment.Action); p.NextAction == nil || !strings.HasSuffix(*p.NextAction, "/2") {
		t.Errorf("the page is %v", p.NextAction)
	}
}

// The first card asks for an authentication, and so may the other one: the page is its own.
func TestAnotherCardMayComeInsteadOfAnAuthentication(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_action")
	b.want(id, cards.Waits, payment.Action)
	b.wantTried(id, "pm_card_visa")
	b.want(id, cards.Conclude, payment.Captured)

	done := b.reserve("pm_action") // and one that was authenticated at the same moment is paid as it is
	b.want(done, cards.Waits, payment.Action)
	b.sim.move(done.String(), payprovider.RequiresAction, payprovider.RequiresCapture)
	b.wantTried(done, "pm_card_visa")
	if p := b.want(done, cards.Conclude, payment.Captured); p.PaymentMethod != "pm_action" {
		t.Errorf("paid with %s", p.PaymentMethod)
	}
}

func TestAnUnknownMethodAfterADeclineCanBeFollowedByAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_declined")
	b.wantDeclined(id, "generic_decline")
	b.wantTried(id, "pm_unknown")
	if p := b.wantDeclined(id, ""); p.Decline.Code != "resource_missing" {
		t.Errorf("%+v", p.Decline)
	}
	b.wantTried(id, "pm_card_visa")
	b.want(id, cards.Conclude, payment.Captured)
}

// The page of the first card is no longer what its buyer wants.
func TestAnotherMethodThatIsRefusedDoesNotBringTheFirstBack(t *testing.T) {
	t.Parallel()
	for method, code := range map[string]string{"pm_unknown": "resource_missing", "pm_no_page": "authentication_required"} {
		b := newBench(t)
		id := b.reserve("pm_action")
		b.want(id, cards.Waits, payment.Action)
		b.wantTried(id, method)
		if p := b.wantDeclined(id, ""); p.Decline.Code != code || p.PaymentMethod != method {
			t.Errorf("%s: %+v, with %s", method, p.Decline, p.PaymentMethod)
		}
		b.want(id, cards.Waits, payment.CardDeclined) // an event makes no page of it
		b.wantTried(id, "pm_card_visa")
		b.want(id, cards.Conclude, payment.Captured)
	}
}

func TestARefusedMethodIsNoDeclineOfItsUser(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_declined")
	b.wantDeclined(id, "generic_decline")
	for _, method := range []string{"pm_unknown", "pm_no_page"} {
		b.wantTried(id, method)
		b.wantDeclined(id, "")
		b.want(b.reserve(method), cards.Conclude, payment.Ended)
	}
	if n := servers.Value[int](t, b.db, `SELECT count(*) FROM payment_steps WHERE declined_user = 'buyer'`); n != 1 {
		t.Errorf("%d declines count", n)
	}
}

// A worker dies after its confirmation, or cannot store the answer. The next one gets the
// same answer under the same key: the card is tried once.
func TestALostAnswerAboutAnotherCardIsAskedForUnderItsKey(t *testing.T) {
	t.Parallel()
	for method, phase := range map[string]payment.Phase{"pm_declined": payment.CardDeclined, "pm_action": payment.Action, "pm_card_visa": payment.Captured} {
		b := newBench(t)
		id := b.reserve("pm_declined")
		b.wantDeclined(id, "generic_decline")
		b.wantTried(id, method)
		b.sim.after = func(c, _ string) error {
			if c == "confirm" {
				panic(died{})
			}
			return nil
		}
		func() {
			defer func() { _ = recover() }()
			b.run(id)
		}()
		b.sim.after = nil
		outcome := cards.Waits
		if phase == payment.Captured {
			outcome = cards.Conclude
		}
		b.want(id, outcome, phase)
		if n := b.sim.tries[b.sim.made[0]]; n != 2 {
			t.Errorf("%s: %d confirmations had an effect", method, n)
		}
	}
}

func TestWithoutAnotherCardADeclineIsTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_declined")
	b.wantDeclined(id, "generic_decline")
	b.exec(`UPDATE payments SET declined_until = clock_timestamp() WHERE purchase_id = $1`, id)
	if why := b.try(id, "pm_card_visa"); why == nil || why.Code != fault.StateConflict || !strings.Contains(why.Detail, "ended at") {
		t.Errorf("another one came too late: %+v", why)
	}
	err := postgres.InTx(t.Context(), b.db, func(tx pgx.Tx) error {
		expired, err := payment.Expire(t.Context(), tx, 10)
		if err == nil && (len(expired) != 1 || expired[0].PurchaseID != id) {
			t.Errorf("over are %v", expired)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p := b.want(id, cards.Conclude, payment.Ended)
	if *p.Ending != payment.Declined || p.Decline == nil || p.Decline.DeclineCode != "generic_decline" {
		t.Errorf("%s, %+v", *p.Ending, p.Decline)
	}
	if got := strings.Join(b.steps(id), " "); got != "payment-started declined" {
		t.Errorf("steps %s", got)
	}

	also := b.reserve("pm_declined") // a worker may come before the sweep
	b.wantDeclined(also, "generic_decline")
	b.exec(`UPDATE payments SET declined_until = clock_timestamp() WHERE purchase_id = $1`, also)
	if p := b.want(also, cards.Conclude, payment.Ended); *p.Ending != payment.Declined || p.Decline == nil {
		t.Errorf("%s, %+v", *p.Ending, p.Decline)
	}
	if got := strings.Join(b.steps(also), " "); got != "payment-started declined" {
		t.Errorf("steps %s", got)
	}
}

func TestTheTimeForAnotherCardIsNeverLongerThanTheReservation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_declined")
	b.exec(`UPDATE payments SET deadline = clock_timestamp() + interval '1 minute' WHERE purchase_id = $1`, id)
	b.run(id)
	if p := b.get(id); p.Phase != payment.CardDeclined || !p.OverAt().Equal(p.Deadline) || !b.jobOf(id).Progress.NextAction.ExpiresAt.Equal(p.Deadline) {
		t.Errorf("%s until %s, the deadline is %s", p.Phase, p.OverAt(), p.Deadline)
	}
	b.exec(`UPDATE payments SET awaits_until = clock_timestamp() + interval '30 seconds' WHERE purchase_id = $1`, id) // as after the end of the sale
	over := servers.Value[time.Time](t, b.db, `SELECT over_at FROM payments WHERE purchase_id = $1`, id)
	if p := b.get(id); !p.OverAt().Equal(*p.AwaitsUntil) || !over.Equal(p.OverAt()) {
		t.Errorf("over at %s, in the row at %s, awaited until %s", p.OverAt(), over, p.AwaitsUntil)
	}
}

func TestFourOtherCardsMayBeBrought(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_declined")
	for range payment.MostTries {
		b.wantDeclined(id, "generic_decline")
		b.wantTried(id, "pm_declined")
	}
	if p := b.want(id, cards.Conclude, payment.Ended); *p.Ending != payment.Declined || p.Tries != 4 {
		t.Errorf("%s after %d tries", *p.Ending, p.Tries)
	}
	action := b.reserve("pm_action")
	for range payment.MostTries {
		b.want(action, cards.Waits, payment.Action)
		b.wantTried(action, "pm_action")
	}
	b.want(action, cards.Waits, payment.Action)
	if why := b.try(action, "pm_card_visa"); why == nil || why.Code != fault.StateConflict || !strings.Contains(why.Detail, "which is the maximum") {
		t.Errorf("a fifth: %+v", why)
	}
}

func TestAnotherCardComesOnlyWhileTheBuyerIsAwaited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var allowed []payment.Phase
	for _, phase := range []payment.Phase{payment.Reserved, payment.Creating, payment.Confirming, payment.Action, payment.CardDeclined, payment.Processing, payment.Capturing,
		payment.Captured, payment.Expiring, payment.Late, payment.Ended, payment.Settled, payment.RefundDue, payment.Cancelled} {
		id := b.reserve("pm_card_visa")
		b.exec(`UPDATE payments SET phase = $2, intent_id = 'pi_' || purchase_id, decline = '{}', declined_until = deadline,
			received = CASE WHEN $2 IN ('captured', 'settled', 'refund_due') THEN amount ELSE 0 END,
			ending = CASE WHEN $2 IN ('expiring', 'late', 'ended', 'cancelled') THEN 'expired' END,
			finished_at = CASE WHEN $2 IN ('settled', 'refund_due', 'cancelled') THEN clock_timestamp() END WHERE purchase_id = $1`, id, string(phase))
		switch why := b.try(id, "pm_other"); {
		case why == nil:
			allowed = append(allowed, phase)
		case why.Code != fault.StateConflict:
			t.Errorf("%s: %+v", phase, why)
		}
	}
	if !slices.Equal(allowed, []payment.Phase{payment.Action, payment.CardDeclined}) {
		t.Errorf("allowed in %v", allowed)
	}
	taken := b.reserve("pm_declined")
	b.wantDeclined(taken, "generic_decline")
	b.exec(`UPDATE payments SET cancel_job = gen_random_uuid(), cancelled_by = 'app:test' WHERE purchase_id = $1`, taken)
	if why := b.try(taken, "pm_other"); why == nil || why.Code != fault.StateConflict {
		t.Errorf("taken back: %+v", why)
	}
}

// The write names its conditions: what was read before another one came changes nothing.
func TestOfTwoOtherCardsAtOnceOneIsTried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_declined")
	p := b.wantDeclined(id, "generic_decline")
	try := func(change string) error {
		return postgres.InTx(t.Context(), b.db, func(tx pgx.Tx) error {
			var batch pgx.Batch
			if change != "" {
				batch.Queue(change, id)
			}
			payment.QueueTry(&batch, &p, "pm_other", nil)
			return tx.SendBatch(t.Context(), &batch).Close()
		})
	}
	for _, change := range []string{
		`UPDATE payments SET phase = 'processing' WHERE purchase_id = $1`, `UPDATE payments SET version = version + 1 WHERE purchase_id = $1`, `UPDATE payments SET tries = 4 WHERE purchase_id = $1`,
		`UPDATE payments SET declined_until = clock_timestamp() WHERE purchase_id = $1`,
		`UPDATE payments SET cancel_job = gen_random_uuid(), cancelled_by = 'app:test' WHERE purchase_id = $1`,
	} {
		if err := try(change); fault.CodeOf(err) != fault.StateConflict {
			t.Errorf("%s: %v", change, err)
		}
	}
	if err := try(""); err != nil {
		t.Fatal(err)
	}
	if err := try(""); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("the second: %v", err)
	}
}

// The tenth ends its purchase at once: its buyer could bring no other card.
func TestTenDeclinesInAnHourAreTheMost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open := b.reserve("pm_action")
	b.want(open, cards.Waits, payment.Action)
	first := b.reserve("pm_declined")
	for range payment.MostTries {
		b.wantDeclined(first, "generic_decline")
		b.wantTried(first, "pm_declined")
	}
	b.want(first, cards.Conclude, payment.Ended) // five
	second, third := b.reserve("pm_declined"), b.reserve("pm_declined")
	for range 2 {
		b.wantDeclined(second, "generic_decline")
		b.wantTried(second, "pm_declined")
	}
	b.wantDeclined(second, "generic_decline") // eight
	if why := b.try(second, "pm_card_visa"); why == nil || why.Code != fault.DeclineLimitExceeded || !why.RetryAt.After(time.Now()) {
		t.Fatalf("while two others are being tried: %+v", why)
	}
	b.wantDeclined(third, "generic_decline") // nine
	b.wantTried(open, "pm_declined")         // its own card that is being tried does not count
	if p := b.want(open, cards.Conclude, payment.Ended); *p.Ending != payment.Declined || p.Decline == nil {
		t.Errorf("after the tenth: %+v", p)
	}
	for _, id := range []uuid.UUID{second, third} {
		why := b.try(id, "pm_card_visa")
		if why == nil || why.Code != fault.DeclineLimitExceeded || why.RetryAt.Before(time.Now().Add(50*time.Minute)) {
			t.Fatalf("another card: %+v", why)
		}
	}
	b.exec(`UPDATE payment_steps SET at = at - interval '1 hour' WHERE purchase_id = $1`, first)
	b.wantTried(second, "pm_card_visa")
}
