package cards_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
)

func TestACardIsCreatedConfirmedAndCapturedInOneRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	p := b.want(id, cards.Conclude, payment.Captured)
	if p.Received != p.Amount || p.LeaseUntil != nil || p.DueAt == nil {
		t.Errorf("captured %d of %d, lease until %v, due at %v", p.Received, p.Amount, p.LeaseUntil, p.DueAt)
	}
	if got := strings.Join(b.sim.called(), " "); got != "create confirm capture" {
		t.Errorf("called %s", got)
	}
	if got := strings.Join(b.steps(id), " "); got != "payment-started authorized captured" {
		t.Errorf("steps %s", got)
	}
	for _, key := range []string{"pi:" + id.String() + ":1", "confirm:" + id.String() + ":1", "capture:" + id.String()} {
		if _, ok := b.sim.keys[key]; !ok {
			t.Errorf("no call had the key %s", key)
		}
	}
}

// The claim of a new payment is the write that allows the first call.
func TestAClaimStoresTheFirstKeyUnlessTheTimeIsOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, over := range []bool{false, true} {
		id := b.reserve("pm_card_visa")
		if over {
			b.endTime(id)
		}
		ref := b.ref(id)
		p, ok, err := payment.Claim(t.Context(), b.db, ref, time.Minute)
		if err != nil || !ok || p.Version != ref.Version+1 || p.LeaseUntil == nil || p.Over != over {
			t.Fatalf("%+v, %v", p, err)
		}
		switch {
		case over && (p.Phase != payment.Reserved || p.Attempt != 0 || p.AttemptAt != nil):
			t.Errorf("its time is over, and it is %s with attempt %d", p.Phase, p.Attempt)
		case !over && (p.Phase != payment.Creating || p.Attempt != 1 || p.AttemptAt == nil || !p.AttemptAt.Equal(p.LeaseUntil.Add(-time.Minute))):
			t.Errorf("it is %s with attempt %d at %v", p.Phase, p.Attempt, p.AttemptAt)
		}
		if _, again, err := payment.Claim(t.Context(), b.db, p.Ref().Item(), time.Minute); again || err != nil {
			t.Errorf("claimed twice: %v", err)
		}
		b.exec(`UPDATE payments SET lease_until = clock_timestamp()`)
		if again, _, err := payment.Claim(t.Context(), b.db, p.Ref().Item(), time.Minute); err != nil || again.Attempt != p.Attempt || again.Phase != p.Phase {
			t.Errorf("another claim has made another key: %s, attempt %d, %v", again.Phase, again.Attempt, err)
		}
	}
}

func TestAFencedWriteLeavesNoStep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	steps := []payment.Step{{PurchaseID: id, Event: payment.StepActionDone}, {PurchaseID: id, Event: payment.StepAuthorized}}
	p, before := b.get(id), len(b.steps(id))
	old := p
	if err := payment.Write(t.Context(), b.db, &p, payment.Always, time.Minute, nil, steps...); err != nil || p.Version != old.Version+1 {
		t.Fatalf("version %d, %v", p.Version, err)
	}
	b.endTime(id)
	for guard, late := range map[payment.Precondition]*payment.Payment{payment.Always: &old, payment.BeforeDeadline: &p} {
		version := late.Version
		if err := payment.Write(t.Context(), b.db, late, guard, time.Minute, nil, steps...); !errors.Is(err, lease.ErrFenced) || late.Version != version {
			t.Errorf("%q: version %d, %v", guard, late.Version, err)
		}
	}
	if got := b.steps(id)[before:]; strings.Join(got, " ") != "action-done authorized" {
		t.Errorf("steps %q", got)
	}
}

func TestAnUnknownPaymentMethodEndsWithoutAnIntent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.want(b.reserve("pm_unknown"), cards.Conclude, payment.Ended)
	if p.Ending == nil || *p.Ending != payment.Refused || p.IntentID != nil || p.Decline == nil || p.Decline.Code != "resource_missing" {
		t.Errorf("ending %v, intent %v, %+v", p.Ending, p.IntentID, p.Decline)
	}
}

func TestAnAuthenticationIsShownUntilItIsDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_action")
	result := b.run(id)
	p, j := b.get(id), b.jobOf(id)
	if result.Outcome != cards.Waits || p.Phase != payment.Action || !result.Announce {
		t.Fatalf("%+v, %s", result, p.Phase)
	}
	if j.State != job.AwaitingAction || j.Progress == nil || j.Progress.NextAction == nil ||
		!strings.HasPrefix(j.Progress.NextAction.URL, "https://bank.example/") || !j.Progress.NextAction.ExpiresAt.Equal(p.Deadline) || b.purchaseState(id) != "awaiting_action" {
		t.Fatalf("the job is %s with %+v, the purchase is %s", j.State, j.Progress, b.purchaseState(id))
	}
	if again := b.run(id); again.Outcome != cards.Waits || again.Announce {
		t.Errorf("nothing is new: %+v", again)
	}
	b.sim.move(id.String(), payprovider.RequiresAction, payprovider.RequiresCapture)
	b.want(id, cards.Conclude, payment.Captured)
	if j := b.jobOf(id); j.State != job.Queued || j.Progress != nil || b.purchaseState(id) != "pending" {
		t.Errorf("the job is %s with %+v, the purchase is %s", j.State, j.Progress, b.purchaseState(id))
	}
	if got := strings.Join(b.steps(id), " "); got != "payment-started action-required action-done authorized captured" {
		t.Errorf("steps %s", got)
	}
}

func TestANextActionThatIsNoPageRefusesTheMethod(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.want(b.reserve("pm_no_page"), cards.Conclude, payment.Ended)
	if *p.Ending != payment.Refused || p.Decline.Code != "authentication_required" || !strings.Contains(p.Decline.Message, "cannot be used here") {
		t.Errorf("%s, %+v", *p.Ending, p.Decline)
	}
}

func TestAReservationThatIsOverEndsByTheProvidersWord(t *testing.T) {
	t.Parallel()
	for phase, method := range map[payment.Phase]string{payment.Reserved: "pm_card_visa", payment.Action: "pm_action"} {
		b := newBench(t)
		id := b.reserve(method)
		if phase == payment.Action {
			b.want(id, cards.Waits, payment.Action)
		}
		b.sim.called()
		b.endTime(id)
		p := b.want(id, cards.Conclude, payment.Ended)
		if *p.Ending != payment.Expired {
			t.Error(*p.Ending)
		}
		want := map[payment.Phase]string{payment.Reserved: "", payment.Action: "fetch cancel"}[phase]
		if got := strings.Join(b.sim.called(), " "); got != want {
			t.Errorf("%s: called %q, want %q", phase, got, want)
		}
	}
}

// What is stored before a call decides, and not what a worker has believed when it came.
func TestNothingIsConfirmedOrCapturedWhenTheTimeEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{"create": "create", "confirm": "create confirm cancel"} {
		b := newBench(t)
		id := b.reserve("pm_card_visa")
		b.sim.after = func(c, _ string) error {
			if c == call {
				b.endTime(id)
			}
			return nil
		}
		p := b.want(id, cards.Conclude, payment.Ended)
		if got := strings.Join(b.sim.called(), " "); got != want || *p.Ending != payment.Expired {
			t.Errorf("the time ends in %s: called %q, want %q; %s", call, got, want, *p.Ending)
		}
	}
}

func TestWhatIsBeingCapturedIsNotGivenUpWhenTheTimeIsOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	lose := failed(payprovider.KindUnknown, "")
	b.sim.before = func(c, _ string) error {
		if c == "capture" {
			return lose
		}
		return nil
	}
	if p := b.want(id, cards.Waits, payment.Capturing); p.WaitsFor() != payment.Provider {
		t.Errorf("it waits for %q", p.WaitsFor())
	}
	b.endTime(id)
	b.want(id, cards.Waits, payment.Capturing)
	b.exec(`UPDATE payments SET latest = deadline`) // no extension is left
	if p := b.want(id, cards.Waits, payment.Capturing); p.WaitsFor() != payment.Operator {
		t.Errorf("after every extension it waits for %q", p.WaitsFor())
	}
	b.sim.before = nil
	b.sim.move(id.String(), payprovider.RequiresCapture, payprovider.Processing)
	if p := b.want(id, cards.Waits, payment.Capturing); p.WaitsFor() != payment.Operator || p.DueAt == nil {
		t.Errorf("while the provider takes the money it waits for %q, and is due at %v", p.WaitsFor(), p.DueAt)
	}
	b.sim.move(id.String(), payprovider.Processing, payprovider.RequiresCapture)
	b.sim.called()
	b.want(id, cards.Conclude, payment.Captured)
	if got := strings.Join(b.sim.called(), " "); got != "fetch capture" {
		t.Errorf("called %s", got)
	}
}

func TestAWorkerThatDiedInConfirmingIsFollowedByAFetch(t *testing.T) {
	t.Parallel()
	for moment, want := range map[string]string{"before": "fetch confirm capture", "after": "fetch capture"} {
		b := newBench(t)
		id := b.reserve("pm_card_visa")
		die := func(c, _ string) error {
			if c == "confirm" {
				panic(c)
			}
			return nil
		}
		if moment == "before" {
			b.sim.before = die
		} else {
			b.sim.after = die
		}
		b.dies(id)
		b.sim.before, b.sim.after = nil, nil
		b.sim.called()
		b.want(id, cards.Conclude, payment.Captured)
		if got := strings.Join(b.sim.called(), " "); got != want {
			t.Errorf("died %s the confirmation: then called %s, want %s", moment, got, want)
		}
	}
}

// dies runs a payment until its worker dies.
func (b *bench) dies(id uuid.UUID) {
	b.t.Helper()
	defer func() {
		if recover() == nil {
			b.t.Fatal("the worker did not die")
		}
	}()
	b.run(id)
}

func TestAStoppedWorkerThatComesBackWritesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.sim.before = func(c, _ string) error {
		if c == "confirm" { // while it is stopped, its lease ends and another worker finishes
			b.sim.before = nil
			b.want(id, cards.Conclude, payment.Captured)
			b.conclude(id)
		}
		return nil
	}
	b.endLease(id)
	result, err := b.runner.Run(context.Background(), b.ref(id))
	if err != nil || result.Outcome != cards.Fenced {
		t.Fatalf("%+v %v", result, err)
	}
	if p := b.get(id); p.Phase != payment.Settled {
		t.Errorf("the payment is %s", p.Phase)
	}
	if n := b.sim.confirmed(id.String()); n != 1 {
		t.Errorf("%d intents were confirmed", n)
	}
}

func TestAStoppedWorkerNeverConfirmsAPaymentThatWasGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.sim.after = func(c, _ string) error {
		if c == "create" { // the intent exists, and nobody knows its id yet
			b.sim.after = nil
			b.giveUp(id)
			b.want(id, cards.Conclude, payment.Ended)
			b.conclude(id)
		}
		return nil
	}
	result, err := b.runner.Run(context.Background(), b.ref(id))
	if err != nil || result.Outcome != cards.Fenced {
		t.Fatalf("%+v %v", result, err)
	}
	if n := b.sim.confirmed(id.String()); n != 0 {
		t.Errorf("%d intents were confirmed", n)
	}
}

// A worker that was stopped after its fetch, while another one went on, does not confirm
// when it comes back: its lease does not cover the call, and it cannot renew it.
func TestAWorkerRenewsItsLeaseBeforeACallThatItMayNotCover(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settings.CallTimeout = b.settings.Lease // no lease ever covers a call
	b.runner = b.newRunner()
	id := b.reserve("pm_card_visa")
	b.sim.before = func(c, _ string) error {
		if c == "confirm" {
			panic(c)
		}
		return nil
	}
	b.dies(id)
	b.sim.called()
	b.sim.before = nil
	b.sim.after = func(c, _ string) error {
		if c == "fetch" {
			b.exec(`UPDATE payments SET version = version + 1 WHERE purchase_id = $1`, id)
		}
		return nil
	}
	if result := b.run(id); result.Outcome != cards.Fenced {
		t.Fatalf("%+v", result)
	}
	if got := strings.Join(b.sim.called(), " "); got != "fetch" {
		t.Errorf("called %s", got)
	}
	b.sim.after = nil
	b.want(id, cards.Conclude, payment.Captured)
}

func TestAnOldReferenceDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	old := b.ref(id)
	b.want(id, cards.Conclude, payment.Captured)
	b.sim.called()
	if result, err := b.runner.Run(t.Context(), old); err != nil || result.Outcome != cards.Nothing || len(b.sim.called()) != 0 {
		t.Errorf("%+v %v", result, err)
	}
}

func TestASlowMethodThatCannotBeCancelledFreesItsPositionsAtTheDeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_processing")
	b.want(id, cards.Waits, payment.Processing)
	b.giveUp(id)
	if p := b.want(id, cards.Waits, payment.Expiring); !p.Uncancellable {
		t.Error("the provider has refused to cancel it, and that is not stored")
	}
	b.endTime(id)
	b.want(id, cards.Conclude, payment.Expiring)
	b.conclude(id)
	if p := b.want(id, cards.Waits, payment.Late); p.DueAt == nil {
		t.Error("nobody will look at it again")
	}
	b.sim.move(id.String(), payprovider.Processing, payprovider.Succeeded)
	if p := b.want(id, cards.Conclude, payment.Captured); p.Received != p.Amount || *p.Ending != payment.CancelledByBuyer {
		t.Errorf("%d, %s", p.Received, *p.Ending)
	}
	if got := b.steps(id); !slices.Contains(got, payment.StepCaptured) {
		t.Errorf("steps %v", got)
	}
}

func TestALateMethodThatFailsEndsCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_processing")
	b.want(id, cards.Waits, payment.Processing)
	b.endTime(id)
	b.want(id, cards.Conclude, payment.Expiring)
	b.conclude(id)
	b.sim.move(id.String(), payprovider.Processing, payprovider.RequiresPaymentMethod)
	b.want(id, cards.Conclude, payment.Ended)
	if got := b.sim.of(id.String()); got[0].Status != payprovider.Canceled {
		t.Errorf("the intent is %s: somebody could confirm it", got[0].Status)
	}
}

func TestMoneyOnAFinalPaymentIsFoundWhenAnEventComes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_action")
	b.want(id, cards.Waits, payment.Action)
	b.giveUp(id)
	b.want(id, cards.Conclude, payment.Ended)
	b.conclude(id)
	b.want(id, cards.Nothing, payment.Cancelled)
	if p := b.get(id); p.DueAt != nil {
		t.Error("a final payment is due")
	}
	b.sim.move(id.String(), payprovider.Canceled, payprovider.Succeeded) // what cannot be
	if _, err := payment.Wake(t.Context(), b.db, []uuid.UUID{id}); err != nil {
		t.Fatal(err)
	}
	if p := b.get(id); p.DueAt == nil {
		t.Fatal("it was woken and is not due")
	}
	if p := b.want(id, cards.Conclude, payment.Captured); p.FinishedAt != nil {
		t.Error("it is finished")
	}
	b.conclude(id)
	b.want(id, cards.Nothing, payment.RefundDue)
}

func TestAProviderThatIsAwayMovesTheDeadlineAndSaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	before := b.get(id)
	retry := time.Now().Add(3 * time.Minute)
	away := failed(payprovider.KindUnavailable, "")
	away.RetryAt = retry
	b.sim.before = func(string, string) error { return away }
	result := b.run(id)
	p, j := b.get(id), b.jobOf(id)
	if result.Outcome != cards.Waits || p.Phase != payment.Creating || p.Faults != 1 || p.WaitingFor == nil || !result.Announce {
		t.Fatalf("%+v %+v", result, p)
	}
	if j.Progress == nil || j.Progress.Waiting == nil || j.Progress.Waiting.Reason != payment.WaitsForProvider.Text() || !j.Progress.Waiting.RetryAt.After(before.CreatedAt.Add(2*time.Minute)) {
		t.Errorf("the job says %+v", j.Progress)
	}
	if p.DueAt.Before(before.CreatedAt.Add(2 * time.Minute)) {
		t.Errorf("due at %s, although the provider asks for %s", p.DueAt, retry)
	}
	if moved := p.Deadline.Sub(before.Deadline); moved < 2*time.Minute {
		t.Errorf("the deadline has moved by %s", moved)
	} else if !before.KeptSince.Equal(before.CreatedAt) || p.KeptSince.Sub(before.KeptSince) != moved {
		t.Errorf("this counts as the user's time: it counted from %s, and does from %s", before.KeptSince, p.KeptSince)
	}
	for range 40 {
		b.want(id, cards.Waits, payment.Creating)
	}
	if p = b.get(id); !p.Deadline.Equal(p.Latest) || p.Attempt != 1 || p.KeptSince.Sub(before.KeptSince) != p.Latest.Sub(before.Deadline) {
		t.Errorf("deadline %s, latest %s, attempt %d, kept since %s", p.Deadline, p.Latest, p.Attempt, p.KeptSince)
	}
	if got := strings.Join(b.steps(id), " "); got != "reservation-extended" {
		t.Errorf("steps %s", got)
	}
	b.sim.before = nil
	b.want(id, cards.Conclude, payment.Captured)
	if p, j := b.get(id), b.jobOf(id); p.Faults != 0 || p.WaitingFor != nil || j.Progress != nil {
		t.Errorf("it still waits: %d faults, %v, %+v", p.Faults, p.WaitingFor, j.Progress)
	}
}

func TestAnAnswerThatIsLostIsLookedForAndNotRepeatedBlindly(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{"create": "create confirm capture", "confirm": "fetch capture", "capture": "fetch"} {
		b := newBench(t)
		id := b.reserve("pm_card_visa")
		b.sim.after = func(c, _ string) error {
			if c == call {
				return failed(payprovider.KindUnknown, "")
			}
			return nil
		}
		if result := b.run(id); result.Outcome != cards.Waits {
			t.Fatalf("%+v", result)
		}
		b.sim.after = nil
		b.sim.called()
		b.want(id, cards.Conclude, payment.Captured)
		if got := strings.Join(b.sim.called(), " "); got != want || len(b.sim.of(id.String())) != 1 {
			t.Errorf("%s was lost: then called %q, want %q; %d intents", call, got, want, len(b.sim.of(id.String())))
		}
	}
}

// A fault that the provider has stored under a key comes back for a day.
func TestAStoredFaultDoesNotHoldUpAPaymentForADay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.sim.poison("create", "pi:"+id.String()+":1")
	b.sim.poison("confirm", "confirm:"+id.String()+":2")
	b.sim.poison("capture", "capture:"+id.String())
	for range 4 { // create twice, confirm, capture
		if result := b.run(id); result.Outcome != cards.Waits {
			t.Fatalf("%+v", result)
		}
	}
	if p := b.want(id, cards.Conclude, payment.Captured); p.Attempt != 2 {
		t.Errorf("attempt %d", p.Attempt)
	}
	if len(b.sim.broken) > 0 {
		t.Error(b.sim.broken)
	}
}

func TestAKeyIsNotUsedWhenTheProviderMayHaveForgottenIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.sim.after = func(c, _ string) error { panic(c) }
	b.dies(id)
	b.exec(`UPDATE payments SET attempt_at = attempt_at - interval '23 hours 1 minute' WHERE purchase_id = $1`, id)
	b.sim.after = nil
	if p := b.want(id, cards.Conclude, payment.Captured); p.Attempt != 2 {
		t.Errorf("attempt %d", p.Attempt)
	}
	if n := b.sim.confirmed(id.String()); n != 1 || len(b.sim.of(id.String())) != 2 {
		t.Errorf("%d of %d intents were confirmed", n, len(b.sim.of(id.String())))
	}
}

func TestWhatIsNotOursIsNeitherConfirmedNorCaptured(t *testing.T) {
	t.Parallel()
	alterations := map[string]func(in *payprovider.Intent){
		"amount":   func(in *payprovider.Intent) { in.Amount++ },
		"currency": func(in *payprovider.Intent) { in.Currency = "USD" },
		"mode":     func(in *payprovider.Intent) { in.Livemode = true },
		"purchase": func(in *payprovider.Intent) { in.Metadata = map[string]string{"purchase_id": uuid.NewString()} },
		"captured": func(in *payprovider.Intent) { in.Status, in.Received = payprovider.Succeeded, in.Amount-1 },
	}
	for what, alter := range alterations {
		b := newBench(t)
		id := b.reserve("pm_action")
		if what != "captured" {
			b.sim.alter = alter
			if p := b.want(id, cards.Waits, payment.Creating); p.WaitingFor == nil || *p.WaitingFor != payment.WaitsForOperator {
				t.Errorf("%s: %v", what, p.WaitingFor)
			}
			b.sim.alter = nil
		}
		b.want(id, cards.Waits, payment.Action)
		b.sim.alter = alter
		b.sim.move(id.String(), payprovider.RequiresAction, payprovider.RequiresCapture)
		b.sim.called()
		for range 2 {
			if p := b.want(id, cards.Waits, payment.Action); p.WaitingFor == nil || p.DueAt == nil {
				t.Errorf("%s: %v, due %v", what, p.WaitingFor, p.DueAt)
			}
		}
		if got := strings.Join(b.sim.called(), " "); got != "fetch fetch" {
			t.Errorf("%s: called %s", what, got)
		}
		b.sim.alter = nil
		b.want(id, cards.Conclude, payment.Captured)
	}
}

func TestAShutdownLosesNothingAndBeginsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	ctx, stop := context.WithCancel(t.Context())
	b.sim.after = func(c, _ string) error {
		if c == "confirm" {
			stop()
		}
		return nil
	}
	result, err := b.runner.Run(ctx, b.ref(id))
	p := b.get(id)
	if err != nil || result.Outcome != cards.Waits || p.Phase != payment.Capturing || p.LeaseUntil != nil {
		t.Fatalf("%+v, %v, %s, lease %v", result, err, p.Phase, p.LeaseUntil)
	}
	if due, err := payment.Agenda.TakeDue(t.Context(), b.db, time.Hour, 10); err != nil || len(due) != 1 {
		t.Errorf("another worker finds %v, %v", due, err)
	}
	if got := strings.Join(b.sim.called(), " "); got != "create confirm" {
		t.Errorf("called %s", got)
	}
}

func TestAnEventDuringARunIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_action")
	b.sim.after = func(c, _ string) error {
		if c == "confirm" {
			if _, err := payment.Wake(t.Context(), b.db, []uuid.UUID{id}); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	b.want(id, cards.Waits, payment.Action)
	if due, err := payment.Agenda.TakeDue(t.Context(), b.db, time.Hour, 10); err != nil || len(due) != 1 {
		t.Errorf("due are %v, %v", due, err)
	}
}
