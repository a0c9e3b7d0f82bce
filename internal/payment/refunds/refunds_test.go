package refunds_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/provider"
	"triprize/internal/testkit/servers"
)

func service(w *world) *refunds.Service {
	return refunds.NewService(w.db, func(r payment.Refund) any { return map[string]any{"state": r.State} })
}

// said is the answer to a command, or its refusal.
func said(done job.Accepted, err error) string {
	if err := fixture.Problem(done, err); err != nil {
		return err.Error()
	}
	var body struct {
		State    string
		Resolved int
		Amount   int
	}
	if err := json.Unmarshal(done.Job.Result, &body); err != nil || done.Job.State != job.Succeeded {
		return fmt.Sprint(done.Job.State, err)
	}
	if body.State != "" {
		return body.State
	}
	return fmt.Sprintf("%d resolved over %d", body.Resolved, body.Amount)
}

func TestARefundIsMadeOnceAndRefundsItsPurchase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stale := w.refund()
	w.tell(`
		run → finished create#1/400; 400 succeeded re_1; refunded, 400 back
		event; run → finished list; 400 succeeded re_1; refunded, 400 back
		timeline → refunded; 400 succeeded re_1; refunded, 400 back`)
	n := w.provider.Asked[0]
	if want := map[string]string{"refund_id": w.id.String(), "purchase_id": w.bought.String(), "campaign_id": w.campaign.String(), "attempt": "1"}; n.IntentID != w.intent || !maps.Equal(n.Metadata, want) {
		t.Errorf("asked for %+v", n)
	}
	if result, err := w.runner.Run(t.Context(), stale.Item()); err != nil || result != refunds.Nothing { // the same task again
		t.Errorf("%s, %v", result, err)
	}
}

// The provider may take days, and the end may be any; a bank may send the money back after days, too.
func TestARefundFollowsWhatTheProviderSaysOfIt(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		"it fails after it has succeeded": `
			run; bank 1 failed declined; event; due; run → refused create#1/400 list; 400 failed re_1 (declined) finished; refunding, 1 for operators`,
	}
	for status, then := range map[string]string{
		"succeeded":       `finished list; 400 succeeded re_1; refunded, 400 back / refunded`,
		"failed":          `refused list; 400 failed re_1 (lost_card); refunding, 1 for operators / refund-failed(lost_card)`,
		"canceled":        `refused list; 400 canceled re_1 (lost_card); refunding, 1 for operators / refund-failed(lost_card)`,
		"requires_action": `waits list; 400 requires_action re_1 due; refunding, 400 back / refund-requires-action`,
	} {
		end, step, _ := strings.Cut(then, " / ")
		_, is, _ := strings.Cut(end, "; ")
		all["pending, and then "+status] = `
			new pending; run → waits create#1/400; 400 pending re_1 due; refunding, 400 back
			run → waits list; 400 pending re_1 due; refunding, 400 back
			bank 1 ` + status + ` lost_card; run → ` + end + `
			timeline → refund-pending ` + step + `; ` + is
	}
	stories(t, all)
}

// The answer is lost, before or after the refund was made: it is looked for first.
func TestALostAnswerNeverRefundsTwice(t *testing.T) {
	t.Parallel()
	const lost, forgotten = `; run → waits create#1/400; 400 open due faults=1 (unknown); refunding`, `
			sql attempt_at = attempt_at - interval '25 hours'; forgets; run → finished list`
	stories(t, map[string]string{
		"the call has not arrived": `fault create unknown once` + lost + forgotten + ` create#2/400; 400 succeeded re_1; refunded, 400 back`,
		"the call has arrived":     `fault create unknown once after` + lost + `, 400 back` + forgotten + `; 400 succeeded re_1; refunded, 400 back`,
		"the key is younger than 23 hours": `
			fault create unknown once; run; sql attempt_at = attempt_at - interval '22 hours'; run → finished create#1/400 list create#1/400; 400 succeeded re_1; refunded, 400 back`,
		"the key is 23 hours old": `
			fault create unknown once; run; sql attempt_at = attempt_at - interval '23 hours'; run → finished create#1/400 list create#2/400; 400 succeeded re_1; refunded, 400 back`,
		"a fault that is stored under the key": ` 
			stored unknown; run; run; run → waits create#1/400 list create#1/400 list create#1/400; 400 open due faults=3 (unknown); refunding
			run → finished list create#2/400; 400 succeeded re_1; refunded, 400 back`,
		"a worker is stopped in its call, and another goes on": `
			during create: sql lease_until = clock_timestamp(), run; run → nothing create#1/400 list create#1/400; 400 succeeded re_1; refunded, 400 back`,
		"an event comes while a worker makes it": `
			during create: event; run → finished create#1/400; 400 succeeded re_1 due; refunded, 400 back
			due`,
	})
}

// Somebody has refunded a part at the provider, or all of it, before ours: known by an event or not.
func TestARefundByHandLeavesOursTheRest(t *testing.T) {
	t.Parallel()
	const refusedOver100 = `new failed no; run; new succeeded; hand 100; hear 2; run → refused create#1/400 list; 300 failed (no) + 100 succeeded re_2; refunding, 100 back, 1 for operators`
	stories(t, map[string]string{
		"a part, unknown": `
			hand 100; run → finished create#1/400 list create#2/300; 300 succeeded re_2 + 100 succeeded re_1; refunded, 400 back
			timeline → refunded-out-of-band(re_1 of 100 JPY was made at the provider, and not by us) refunded(300 JPY of the 400 JPY that the card has paid); 300 succeeded re_2 + 100 succeeded re_1; refunded, 400 back
			event; run → finished list; 300 succeeded re_2 + 100 succeeded re_1; refunded, 400 back`,
		"a part, heard of": `hand 100; hear 1; run → finished list create#1/300; 300 succeeded re_2 + 100 succeeded re_1; refunded, 400 back`,
		"two parts":        `hand 100; hand 250; run → finished create#1/400 list create#2/50; 50 succeeded re_3 + 100 succeeded re_1 + 250 succeeded re_2; refunded, 400 back`,
		"all of it, heard of": `
			hand 400; hear 1; run → finished list; 0 succeeded + 400 succeeded re_1; refunded, 400 back
			event; run → finished list; 0 succeeded + 400 succeeded re_1; refunded, 400 back`,
		"all of it, and its end comes when ours has nothing left": `
			hand 400 pending; hear 1; run → finished list; 0 succeeded + 400 pending re_1; refunded, 400 back
			bank 1 succeeded; event; run → finished list; 0 succeeded + 400 succeeded re_1; refunded, 400 back`,
		"all of it, and a bank sends it back": `
			hand 400; hear 1; run; bank 1 failed; event; run → finished list list; 0 succeeded, 400 failed (re_1 of 400 JPY is failed at the provider: that money was not refunded) + 400 failed re_1 finished; refunding, 1 for operators`,
		"it fails while another one of ours is being made, and this one has nothing left": `
			hand 1200; cancel 3; event; run; fault create unknown; cancel all; run; use 1; bank 1 failed; event
			run → finished list; 0 succeeded, 400 open due faults=1 (unknown), 1200 failed (re_1 of 1200 JPY is failed at the provider: that money was not refunded) + 1200 failed re_1 finished; refunding, 1 for operators`,
		"ours makes another one while the first lists": `
			cancel 3; run; event; during list: cancel all, fault create unknown once after, run; run → finished create#1/1200 list create#1/400; 1200 succeeded re_1, 400 open due faults=1 (unknown); refunding, 1600 back
			use 2; run → finished list; 1200 succeeded re_1, 400 succeeded re_2; refunded, 1600 back`,
		"all of it in parts":  `hand 150; hand 250; run → finished create#1/400 list; 0 succeeded + 150 succeeded re_1 + 250 succeeded re_2; refunded, 400 back`,
		"one that has failed": `hand 400 failed; run; event; run → finished create#1/400 list; 400 succeeded re_2 + 400 failed re_1; refunded, 400 back`,
		"a part, after it was refused: an operator has the rest tried": refusedOver100 + `
			retry → open; 300 open due + 100 succeeded re_2; refunding, 100 back
			run → finished list create#2/300; 300 succeeded re_3 + 100 succeeded re_2; refunded, 400 back`,
		"all of it, after it was refused": `
			new failed no; run; hand 400 succeeded; hear 2; run → finished create#1/400 list; 0 succeeded + 400 succeeded re_2; refunded, 400 back
			event; run → finished list; 0 succeeded + 400 succeeded re_2; refunded, 400 back`,
		"all of it, and an operator has ours tried again": `
			new failed no; run; hand 400 succeeded; retry; run → finished create#1/400 list; 0 succeeded + 400 succeeded re_2; refunded, 400 back`,
	})
}

// A bank sends back what somebody had refunded by hand, after ours has given back the rest: that
// part is owed again, and an operator sees to it.
func TestARefundByHandThatFailsLaterIsOwedAgain(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		"a part": `
			hand 100; run; bank 1 failed; hear 1; hear 1 → create#1/400 list create#2/300; 300 succeeded re_2 due, 100 failed due (re_1 of 100 JPY is failed at the provider: that money was not refunded) + 100 failed re_1 finished; refunding, 300 back, 1 for operators
			use 2; retry; run → finished list create#1/100; 300 succeeded re_2 due, 100 succeeded re_3 + 100 failed re_1 finished; refunded, 400 back`,
		"all": `
			hand 400; run; bank 1 failed; hear 1 → create#1/400 list; 0 succeeded due, 400 failed (re_1 of 400 JPY is failed at the provider: that money was not refunded) + 400 failed re_1 finished; refunding, 1 for operators
			use 2; retry; run → finished list create#1/400; 0 succeeded due, 400 succeeded re_2 + 400 failed re_1 finished; refunded, 400 back`,
	}
	// An operator says that ours is done before a worker has looked: ours is then only about what that has left.
	for _, resolve := range []string{"resolve", "resolve campaign"} {
		for hand, left := range map[string]string{"100": "300", "400": "0"} {
			answer := map[string]string{"resolve": "resolved", "resolve campaign": "1 resolved over " + left}[resolve]
			all[hand+", and "+resolve] = `
				new failed no; run; hand ` + hand + ` succeeded; hear 2; ` + resolve + ` → ` + answer + ` create#1/400; ` + left + ` resolved due (no) by operator:ops: by bank + ` + hand + ` succeeded re_2; refunded, ` + hand + ` back
				bank 2 failed; run → finished list; ` + left + ` resolved (no) by operator:ops: by bank, ` + hand + ` failed (re_2 of ` + hand + ` JPY is failed at the provider: that money was not refunded) + ` + hand + ` failed re_2 finished; refunding, 1 for operators`
		}
	}
	stories(t, all)
}

// Two that are to be made at once would both ask for the same money, and a call of a part that was lost may still arrive.
func TestOneRefundOfAPurchaseIsMadeAtATime(t *testing.T) {
	t.Parallel()
	stories(t, map[string]string{
		"an operator has both tried again": `
			new failed no; run; second; new succeeded; retry; use 2; retry → state-conflict: refund: the provider has not rejected the refund, or another refund of the purchase is being made create#1/400; 300 open due, 100 failed; refunding, 1 for operators
			use 1; run → finished list create#2/300; 300 succeeded re_2, 100 failed; refunding, 300 back, 1 for operators
			use 2; retry; run → finished list create#1/100; 300 succeeded re_2, 100 succeeded re_3; refunded, 400 back`,
		"the key of a part stays while its call may arrive": `
			second; stored unknown; run; run; run; run; run → waits create#1/300 list create#1/300 list create#1/300 list create#1/300 list create#1/300; 300 open due faults=5 (unknown), 100 failed; refunding, 1 for operators
			sql attempt_at = attempt_at - interval '23 hours'; run → finished list create#2/300; 300 succeeded re_1, 100 failed; refunding, 300 back, 1 for operators`,
		"an older form, which shows what others have returned since": `
			new failed no; run; hand 150 succeeded; hear 2; resolve 400 → state-conflict: refund: 250 JPY are to be returned now, and not 400 JPY; others may have returned a part. Read it again create#1/400; 400 failed re_1 due (no) + 150 succeeded re_2; refunding, 150 back, 1 for operators
			resolve 250 → resolved; 250 resolved due (no) by operator:ops: by bank + 150 succeeded re_2; refunded, 150 back`,
		"both are resolved together": `
			new failed no; run; second; hand 250 succeeded; hear 2; resolve campaign → 2 resolved over 150 create#1/400; 150 resolved due (no) by operator:ops: by bank, 0 resolved due by operator:ops: by bank + 250 succeeded re_2; refunded, 250 back`,
	})
}

// What is cancelled in parts is refunded in parts, up to what others have left of them.
func TestRefundsOfPartsGiveBackWhatIsLeftOfWhatWasCancelled(t *testing.T) {
	t.Parallel()
	stories(t, map[string]string{
		"half of one by hand, of which nobody has told us": `
			hand 200; fault create unknown; cancel 1; run → waits create#1/400; 400 open due faults=1 (unknown); completed, 200 back
			cancel 1; run → waits; 400 open due faults=1 (unknown), 400 open due; completed, 200 back
			mended; hear 1; use 1; run → finished list create#1/400; 400 succeeded re_2, 400 open due + 200 succeeded re_1; completed, 600 back
			use 2; run → finished list create#1/200; 400 succeeded re_2, 200 succeeded re_3 + 200 succeeded re_1; completed, 800 back
			cancel all; run → finished create#1/800; 400 succeeded re_2, 200 succeeded re_3, 800 succeeded re_4 + 200 succeeded re_1; refunded, 1600 back`,
		"a lost call may still arrive: the key stays": `
			fault create unknown; cancel 1; run; run; run; run; run; run; run → waits create#1/400 list create#1/400 list create#1/400 list create#1/400 list create#1/400 list create#1/400 list create#1/400; 400 open due faults=7 (unknown); completed`,
		"the fault of a call is replayed, and it has made nothing: a further key": `
			fault create unknown once; cancel 1; run; stored unknown replayed; run; run → finished create#1/400 list create#1/400 list create#2/400; 400 succeeded re_1; completed, 400 back`,
		"the fault of a call is replayed, and the list was late": `
			fault create unknown once; cancel 1; run; stored unknown replayed; run; arrive; run → finished create#1/400 list create#1/400 list; 400 succeeded re_1; completed, 400 back`,
		"one that was resolved fails by hand, and is owed": `
			new failed no; cancel 1; run → refused create#1/400; 400 failed re_1 (no); completed, 1 for operators
			hand 400 succeeded; hear 2; resolve → resolved; 0 resolved due (no) by operator:ops: by bank + 400 succeeded re_2; completed, 400 back
			bank 2 failed; hear 2 → ; 0 resolved due (no) by operator:ops: by bank, 400 failed (re_2 of 400 JPY is failed at the provider: that money was not refunded) + 400 failed re_2 finished; completed, 1 for operators`,
		"all by hand, and the lost call is made after all": `
			fault create unknown; cancel 1; run; hand 400; run → finished create#1/400 list; 0 succeeded + 400 succeeded re_1; completed, 400 back
			made 1; run; run → finished list list; 400 succeeded re_2 + 400 succeeded re_1; completed, 800 back, rings 1 times`,
		"a second refund is made under our id": `
			new failed; cancel 1; run; new succeeded; retry; run; run → finished create#1/400 list create#2/400 list; 400 succeeded re_2; completed, 400 back
			made 2; run; run → finished list list; 400 succeeded re_2 + 400 succeeded re_3; completed, 800 back, rings 1 times
			bank 3 failed; run → finished list; 400 succeeded re_2 + 400 failed re_3 finished; completed, 400 back, rings 1 times`,
		"money of the charge was paid by bank: the key of the rest stays": `
			fault create unknown; cancel 3; sql stuck = true; resolve; cancel all; run; run; run; run; run → waits create#1/400 list create#1/400 list create#1/400 list create#1/400 list create#1/400; 1200 resolved due by operator:ops: by bank, 400 open due faults=5 (unknown); refunding`,
		"half by hand between the key and the call": `
			cancel 1; during create: hand 200, sql lease_until = clock_timestamp(), run; run → nothing create#1/400 list create#1/200; 200 succeeded re_2 + 200 succeeded re_1; completed, 400 back`,
		"half by hand, and the first call has never arrived": `
			cancel 1; fault create unknown once; during create: hand 200; run; run; run → finished create#1/400 list create#1/200 list; 200 succeeded re_2 + 200 succeeded re_1; completed, 400 back`,
		"half by hand, and the first call arrives just before the other": `
			cancel 1; fault create unknown once; during create: hand 200; during create 2: arrive; run; run; run → finished create#1/400 list create#1/200 create#1/400 list; 400 succeeded re_2 + 200 succeeded re_1; completed, 600 back, rings 1 times`,
		"half by hand, and the fault of the first call is stored": `
			cancel 1; fault create unknown once; during create: hand 200; during create 2: stored unknown replayed; run; run; run → finished create#1/400 list create#1/200 create#1/400 list create#2/200; 200 succeeded re_2 + 200 succeeded re_1; completed, 400 back`,
		"half by hand, and the first call was refused": `
			cancel 1; during create: hand 200, stored refused; run; run; run → finished create#1/400 list create#2/200 list list; 200 succeeded re_2 + 200 succeeded re_1; completed, 400 back`,
	})
}

// The bank has the money of a disputed charge: a refund beside it would pay twice.
func TestADisputedChargeIsNotRefundedAndWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	stories(t, map[string]string{"a dispute": `
		dispute needs_response; run → refused; 400 failed (disputed: the bank has the money, and decides (du_1, needs_response)); refunding, 1 for operators
		dispute won; run → refused list; 400 failed (disputed: the bank has the money, and decides (du_1, needs_response)); refunding, 1 for operators
		dispute needs_response; retry; run → refused list; 400 failed (disputed: the bank has the money, and decides (du_1, needs_response)); refunding, 1 for operators
		dispute won; retry; run → finished list create#2/400; 400 succeeded re_1; refunded, 400 back`})
}

// What the provider has refused, or refuses to report, an operator has tried again, or says how it has ended.
func TestAnOperatorSeesToWhatTheProviderRefuses(t *testing.T) {
	t.Parallel()
	const refused, stuck = `new failed no; run → refused create#1/400; 400 failed re_1 (no); refunding, 1 for operators`, `
			fault create unknown; fault list refused/resource_missing; run → waits create#1/400; 400 open due faults=1 (unknown); refunding
			run → waits list; 400 open due stuck faults=2 (resource_missing); refunding, 1 for operators`
	all := map[string]string{
		"it is tried again with a key of its own": refused + `
			new succeeded; retry; due; run → finished list create#2/400; 400 succeeded re_2; refunded, 400 back`,
		"it was canceled, and is tried again": `
			new canceled; run; new succeeded; retry; run → finished create#1/400 list create#2/400; 400 succeeded re_2; refunded, 400 back`,
		"it is tried again while a worker has it": refused + `
			during list: retry; run → nothing list; 400 open due; refunding`,
		"it was refunded by hand": refused + `
			resolve → resolved; 400 resolved re_1 due (no) by operator:ops: by bank; refunded
			timeline → refund-failed(no) refund-resolved(by bank); 400 resolved re_1 due (no) by operator:ops: by bank; refunded
			due; run → finished list; 400 resolved re_1 (no) by operator:ops: by bank; refunded`,
		"stuck, and resolved": stuck + `
			counts → 0 under way, 1 for people; 400 open due stuck faults=2 (resource_missing); refunding, 1 for operators
			resolve; due; run → finished list; 400 resolved due faults=1 (resource_missing) by operator:ops: by bank; refunded`,
		"stuck, and a worker has it": stuck + `
			sql lease_until = clock_timestamp() + interval '1 hour'; resolve → state-conflict: a worker is checking this refund with the provider; retry in a moment; 400 open due stuck leased faults=2 (resource_missing); refunding, 1 for operators`,
		"stuck, and tried again": stuck + `
			mended; retry → open; 400 open due stuck faults=2 (resource_missing); refunding, 1 for operators
			due; run → finished list create#1/400; 400 succeeded re_1; refunded, 400 back`,
		"stuck, and the provider answers again": stuck + `
			mended; fault create unknown; run → waits list create#1/400; 400 open due faults=3 (unknown); refunding`,
		"the provider is away": `
			fault any unavailable; run; run → waits create#1/400 list; 400 open due faults=2 (unavailable); refunding
			resolve → state-conflict: the refund is open; only a refund whose waiting_for is operator can be resolved by hand; 400 open due faults=2 (unavailable); refunding
			retry → state-conflict: the refund is open; only a refund whose waiting_for is operator can be retried; 400 open due faults=2 (unavailable); refunding`,
		"its buyer is to act": `
			new requires_action; run; counts → 0 under way, 1 for people create#1/400; 400 requires_action re_1 due; refunding, 400 back
			resolve → state-conflict: the refund is requires_action; only a refund whose waiting_for is operator can be resolved by hand; 400 requires_action re_1 due; refunding, 400 back
			retry → state-conflict: the refund is requires_action; only a refund whose waiting_for is operator can be retried; 400 requires_action re_1 due; refunding, 400 back
			sql stuck = true → ; 400 requires_action re_1 due stuck; refunding, 400 back, 1 for operators`,
	}
	for _, kind := range []string{"unavailable", "unknown", "limited"} {
		all["stuck, and the provider is "+kind] = stuck + `
			mended; fault list ` + kind + `; run → waits list; 400 open due stuck faults=3 (` + kind + `); refunding, 1 for operators`
	}
	stories(t, all)
}

// What is said once about money that is paid twice is the provider's word, and not an event's.
func TestWhatIsResolvedByHandIsLookedForUntilTheProviderHasAnswered(t *testing.T) {
	t.Parallel()
	const by, tooMuch, rings = ` by operator:ops: by bank`, `paid twice: 400 JPY too much, by hand and at the provider`, `, rings 1 times`
	all := map[string]string{
		"nothing was sent": `sql state = 'failed', due_at = NULL; resolve → resolved; 400 resolved` + by + `; refunded`,
		"nothing was sent, and what an event reports is not known yet": `
			hand 400; event; fault list forbidden once; run; resolve → resolved list; 400 resolved due (forbidden)` + by + `; refunded, 400 back
			run → finished list; 400 resolved (` + tooMuch + `)` + by + ` + 400 succeeded re_1; refunded, 400 back` + rings,
		"another part has listed it": `
			fault create unknown once after; cancel 2; run; sql stuck = true; resolve → resolved create#1/800; 800 resolved due (unknown)` + by + `; completed, 800 back
			fault create refused once; cancel 1; run → finished create#1/400 list; 800 resolved due (unknown)` + by + `, 0 succeeded + 800 succeeded re_1; completed, 800 back
			use 1; run; run → finished list list; 800 resolved (` + tooMuch + `)` + by + `, 0 succeeded + 800 succeeded re_1; completed, 800 back` + rings,
	}
	all["by hand, too, which the bank sends back"] = `
		new failed no; run; resolve; hand 400 succeeded; event; run → finished create#1/400 list; 400 resolved re_1 (` + tooMuch + `)` + by + ` + 400 succeeded re_2; refunded, 400 back` + rings + `
		bank 2 failed; event; run → finished list; 400 resolved re_1` + by + ` + 400 failed re_2 finished; refunded` + rings
	// The provider has refused ours, an operator has resolved it, and an event comes.
	for what, c := range map[string]struct{ then, ours, others, noted, back string }{
		"it has failed there":          {`bank 1 failed no`, `re_1 (no)`, ``, ``, ``},
		"it was made after all":        {`bank 1 pending`, `(` + tooMuch + `)`, ` + 400 pending re_1`, `re_1 of 400`, `, 400 back` + rings},
		"by hand, too":                 {`hand 400 succeeded`, `re_1 (` + tooMuch + `)`, ` + 400 succeeded re_2`, `re_2 of 400`, `, 400 back` + rings},
		"a part by hand":               {`hand 1 succeeded`, `re_1 (paid twice: 1 JPY too much, by hand and at the provider)`, ` + 1 succeeded re_2`, `re_2 of 1`, `, 1 back` + rings},
		"by hand, and that has failed": {`hand 400 failed`, `re_1 (no)`, ` + 400 failed re_2`, ``, ``},
	} {
		is := `; 400 resolved ` + c.ours + by + c.others + `; refunded` + c.back
		timeline := ``
		if c.noted != "" {
			timeline = ` refunded-out-of-band(` + c.noted + ` JPY was made at the provider, although ours was resolved by hand)`
		}
		all[what] = `
			new failed no; run; resolve; ` + c.then + `; event; fault list unavailable once; due; run
			run → finished list` + is + `
			run → finished list` + is + `
			timeline → refund-failed(no) refund-resolved(by bank)` + timeline + is
	}
	// The key is refused when an operator resolves it, and for a while.
	const refused = `; fault any forbidden; run; resolve; due; run; sql due_at = clock_timestamp(); due; run; sql due_at = clock_timestamp(); mended; due; run → finished create#1/400 list list list list`
	for what, c := range map[string][2]string{
		"pending, and then succeeded":     {`new pending; run; bank 1 succeeded`, `; 400 resolved (` + tooMuch + `)` + by + ` + 400 succeeded re_1; refunded, 400 back` + rings},
		"made, and its answer lost":       {`fault create unknown once after; run`, `; 400 resolved (` + tooMuch + `)` + by + ` + 400 succeeded re_1; refunded, 400 back` + rings},
		"pending, and then failed":        {`new pending; run; bank 1 failed`, `; 400 resolved re_1 (forbidden)` + by + `; refunded`},
		"it has failed, and nobody knows": {`new failed; fault create unknown once after; run`, `; 400 resolved (forbidden)` + by + `; refunded`},
	} {
		story := c[0] + refused + c[1] + `
			event; run → finished list` + c[1]
		all[what], all[what+", with its campaign"] = story, strings.Replace(story, "resolve;", "resolve campaign;", 1)
	}
	stories(t, all)
}

// An answer must be what was asked for; else nothing is believed.
func TestARefundOfAnotherAmountCurrencyOrIntentChangesNoState(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*payprovider.Refund){
		"amount":   func(r *payprovider.Refund) { r.Amount-- },
		"currency": func(r *payprovider.Refund) { r.Currency = "USD" },
		"intent":   func(r *payprovider.Refund) { r.IntentID = "pi_other" },
		"status":   func(r *payprovider.Refund) { r.Status = "lost" },
	} {
		w := newWorld(t)
		w.tell(`new pending; run; bank 1 succeeded`)
		good := w.provider.Refunds[0]
		spoil(&w.provider.Refunds[0])
		w.do("run")
		if r := w.refund(); r.State != payment.RefundPending || !r.Stuck || time.Until(*r.DueAt) < 30*time.Minute {
			t.Errorf("%s: %+v", name, r)
		}
		w.provider.Refunds[0] = good
		w.tell(`run → finished list list; 400 succeeded re_1; refunded, 400 back`)
	}
}

func TestAfterEachFaultARefundWaitsLonger(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string][]time.Duration{
		"unavailable": {1, 2, 4, 8, 16, 32, 60, 60, 60},
		"forbidden":   {1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300},
		"mismatch":    {3600, 3600},

		"mismatch/idempotency_error": {1, 2, 4}, // a further key follows
	} {
		w := newWorld(t)
		away := says(kind)
		w.provider.Fail(away)
		for i, least := range want {
			before := time.Now()
			w.do("run")
			if waits := w.refund().DueAt.Sub(before); waits < least*time.Second || waits > least*time.Second+time.Minute { // the clock of the database is ours
				t.Errorf("after %d times %s it waits for %s", i+1, kind, waits)
			}
		}
		if n := w.forOperator(); (n == 1) != (kind == "forbidden" || kind == "mismatch") {
			t.Errorf("%s: %d wait for an operator", kind, n)
		}
		if kind == "unavailable" {
			away.RetryAt = time.Now().Add(2 * time.Hour)
			w.do("run")
			if due := w.refund().DueAt; due.Before(time.Now().Add(time.Hour)) {
				t.Errorf("due at %s, before the provider wants it", due)
			}
		}
	}
}

func TestARefundWaitsForAnotherOneLongerAndLonger(t *testing.T) {
	t.Parallel()
	w := purchased(t, servers.DB(t), 4, 4)
	for _, command := range []string{"fault create unknown", "cancel 3", "run", "cancel all"} {
		w.do(command)
	}
	for age, least := range map[string]time.Duration{"0": time.Second, "40 seconds": 10 * time.Second, "1 day": time.Minute} {
		w.do("sql created_at = clock_timestamp() - interval '" + age + "'")
		before := time.Now()
		w.do("run")
		if waits := w.refund().DueAt.Sub(before); waits < least || waits > least+time.Minute {
			t.Errorf("after %s it waits for %s", age, waits)
		}
	}
}

// The key is refused, and mended: an operator sees the refund until then, also during a call, and no failure afterwards.
func TestARefundGoesOnWhenTheKeyIsMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tell(`
		fault create forbidden/api_key_expired/Expired; run → waits create#1/400; 400 open due stuck faults=1 (api_key_expired: Expired); refunding, 1 for operators
		counts → 0 under way, 1 for people; 400 open due stuck faults=1 (api_key_expired: Expired); refunding, 1 for operators
		mended`)
	w.provider.Hook(provider.Hook{Call: "create", Once: true, Do: func(string) error {
		if w.forOperator() != 1 {
			t.Error("it is off the operators' list during a call")
		}
		return nil
	}})
	w.tell(`
		run → finished list create#1/400; 400 succeeded re_1; refunded, 400 back
		fault any forbidden; event; run → finished list; 400 succeeded re_1 due stuck faults=1; refunded, 400 back`)
	if _, err := w.db.Exec(t.Context(), `UPDATE refunds SET failure = 'api_key_expired' WHERE id = $1`, w.id); err == nil {
		t.Error("the table takes a failure of a refund that has succeeded")
	}
}

// Each state and method, by whom: only an app resolves what is listed for it, only an
// operator what the provider has refused, and nothing else is retried or resolved.
func TestOnlyWhatWaitsForAPersonIsRetriedOrResolvedAndByTheRightOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	external, wallet := otherRefund(t, w, payment.RefundExternal), otherRefund(t, w, payment.RefundToWallet)
	const retry, asApp, asOperator = "retry", "resolve by an app", "resolve by an operator"
	check := func(what string, id uuid.UUID, want fault.Code) {
		t.Helper()
		done, err := job.Accepted{}, error(nil)
		shown := w.shown(id)
		switch what {
		case retry:
			done, err = service(w).Retry(t.Context(), fixture.Command(job.KindRefundRetry), id, "operator:ops")
		case asApp:
			done, err = service(w).Resolve(t.Context(), fixture.Command(job.KindRefundResolve), access.OfClient("test"), shown, "app:test", "why")
		case asOperator:
			done, err = service(w).Resolve(t.Context(), fixture.Command(job.KindRefundResolve), access.Everything(), shown, "operator:ops", "why")
		}
		if err := fixture.Problem(done, err); fault.CodeOf(err) != want {
			t.Errorf("%s of %s: %v", what, id, err)
		}
	}
	check(retry, uuid.New(), fault.NotFound)
	check(asApp, uuid.New(), fault.NotFound)
	check(retry, external, fault.StateConflict)
	check(retry, wallet, fault.StateConflict)
	check(asApp, wallet, fault.StateConflict)
	check(asOperator, external, fault.Forbidden)
	check(asApp, w.id, fault.Forbidden)
	for _, state := range []string{"open", "pending", "requires_action", "succeeded"} {
		w.sql(`UPDATE refunds SET state = '` + state + `', finished_at = CASE WHEN '` + state + `' = 'succeeded' THEN clock_timestamp() END WHERE id = $1`)
		check(retry, w.id, fault.StateConflict)
		check(asOperator, w.id, fault.StateConflict)
	}
	check(asApp, external, "")
	check(asApp, external, fault.StateConflict)
}

// otherRefund stores a refund of a purchase of the same campaign that was not paid by card.
func otherRefund(t *testing.T, w *world, method payment.RefundMethod) uuid.UUID {
	t.Helper()
	id, bought := uuidv7.New(), fixture.Buy(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)), "otto", 0, 1)
	err := postgres.InTx(t.Context(), w.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		payment.QueueInsertRefunds(&b, []payment.Refund{{ID: id, PurchaseID: bought, CampaignID: w.campaign, UserID: "otto", Method: method,
			Amount: 100, Currency: "JPY", Reason: payment.RefundCampaignCancelled}})
		b.Queue(`UPDATE refunds SET client = 'test' WHERE id = $1`, id) // there is no purchase that says so
		return tx.SendBatch(t.Context(), &b).Close()
	})
	servers.NoError(t, err)
	return id
}

// Those that are named are resolved, over what they are about now, or none: of one campaign, and by the right one.
func TestTheRefundsOfACampaignAreResolvedTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tell(`new failed no; run`)
	external := otherRefund(t, w, payment.RefundExternal)
	other := worldOn(t, w.db) // of another campaign
	other.do("new failed no")
	other.do("run")
	everybody, app := access.Everything(), access.OfClient("test")
	card, listed, foreign := w.shown(w.id), w.shown(external), w.shown(other.id)
	old := card
	old.Amount++
	const untouched = "card failed, external listed, card failed"
	for _, c := range []struct {
		happens string
		who     access.Grant
		made    []refunds.ByHand
		want    string
	}{
		{`state = 'open', stuck = true, lease_until = clock_timestamp() + interval '1 hour'`, everybody, []refunds.ByHand{card}, "state-conflict: a worker is checking this refund with the provider; retry in a moment; card open, external listed, card failed"},
		{`state = 'failed', lease_until = NULL`, everybody, []refunds.ByHand{card, foreign}, "not-found: 1 of these 2 refunds are not of this campaign; " + untouched},
		{"", everybody, []refunds.ByHand{card, card}, "invalid-request: a refund is named twice; " + untouched},
		{"", everybody, []refunds.ByHand{old}, "state-conflict: refund " + w.id.String() + ": 400 JPY are to be returned now, and not 401 JPY; others may have returned a part. Read it again; " + untouched},
		{"", everybody, []refunds.ByHand{card, listed}, "forbidden: the app has the money of this purchase; only an app can resolve its refund; " + untouched},
		{"", access.OfClient("another"), []refunds.ByHand{listed}, "not-found: 1 of these 1 refunds are not of this campaign; " + untouched},
		{"", app, []refunds.ByHand{listed}, "1 resolved over 100; card failed, external resolved by operator:ops: by bank, card failed"},
		{"", everybody, []refunds.ByHand{card}, "1 resolved over 400; card resolved by operator:ops: by bank, external resolved by operator:ops: by bank, card failed"},
	} {
		if c.happens != "" {
			w.sql(`UPDATE refunds SET ` + c.happens + ` WHERE id = $1`)
		}
		r := fixture.Command(job.KindRefundsResolve)
		r.CampaignID = w.campaign
		got := said(service(w).ResolveCampaign(t.Context(), r, c.who, c.made, "operator:ops", "by bank"))
		if got += "; " + servers.Value[string](t, w.db, `SELECT string_agg(method || ' ' || state || coalesce(' by ' || resolved_by || ': ' || resolve_reason, ''), ', ' ORDER BY array_position($1::uuid[], id)) FROM refunds`,
			[]uuid.UUID{w.id, external, other.id}); got != c.want {
			t.Errorf("%s\n want %s", got, c.want)
		}
	}
	if got := w.do("timeline"); got != "refund-failed(no) refund-resolved(by bank)" {
		t.Error(got)
	}
	r := fixture.Command(job.KindRefundsResolve)
	if r.CampaignID = uuid.New(); fault.CodeOf(fixture.Problem(service(w).ResolveCampaign(t.Context(), r, everybody, []refunds.ByHand{card}, "operator:ops", "r"))) != fault.NotFound {
		t.Error("an unknown campaign")
	}
}

// The writes have the conditions, too: what a worker or an operator has read may be over.
func TestAWriteIsRefusedWhenMoreOrLessIsLeftThanWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tell(`hand 100; hear 1`)
	for amount, ok := range map[money.Amount]bool{301: false, 300: true} {
		r := w.refund()
		r.Attempt, r.Amount = r.Attempt+1, amount
		if err := refunds.Write(t.Context(), w.db, &r, 0, nil); (err == nil) != ok {
			t.Errorf("%d of 300: %v", amount, err)
		}
	}
	smaller := newWorld(t) // for one by hand that has failed meanwhile
	smaller.tell(`hand 100; hear 1`)
	r := smaller.refund()
	r.Attempt, r.Amount = 1, 300
	smaller.tell(`bank 1 failed; hear 1`)
	if err := refunds.Write(t.Context(), smaller.db, &r, 0, nil); err == nil {
		t.Error("it is written")
	}
	smaller.tell(`run → finished list create#1/400; 400 succeeded re_2 + 100 failed re_1 finished; refunded, 400 back`)
	stuck := newWorld(t)
	stuck.sql(`UPDATE refunds SET stuck = true, attempt = 1, attempt_at = clock_timestamp(), lease_until = clock_timestamp() + interval '1 hour' WHERE id = $1`)
	byHand := newWorld(t)
	byHand.tell(`new failed no; run`)
	read := byHand.refund()
	byHand.tell(`hand 100 succeeded; hear 2`)
	for what, c := range map[string]struct {
		w    *world
		read payment.Refund
	}{"a worker has it": {stuck, stuck.refund()}, "others have returned a part": {byHand, read}} {
		err := postgres.InTx(t.Context(), c.w.db, func(tx pgx.Tx) error {
			var b pgx.Batch
			refunds.QueueResolve(&b, c.read, "operator:ops", "r")
			return tx.SendBatch(t.Context(), &b).Close()
		})
		if fault.CodeOf(err) != fault.StateConflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	stuck.do("second")
	if _, err := stuck.db.Exec(t.Context(), `UPDATE refunds SET state = 'open', attempt = 1, attempt_at = clock_timestamp() WHERE number = 2`); err == nil {
		t.Error("the schema allows two of a purchase to be made")
	}
}

// Two refunds of a purchase end in transactions that do not see each other: the later one waits
// for the earlier, and the purchase is refunded.
func TestTheLastOfTwoRefundsThatEndAtOnceRefundsThePurchase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("second")
	finish := func(tx pgx.Tx, number int) error {
		var b pgx.Batch
		b.Queue(`UPDATE refunds SET state = 'succeeded', finished_at = clock_timestamp(), due_at = NULL WHERE number = $1`, number)
		purchase.QueueFollow(&b, w.bought)
		return tx.SendBatch(t.Context(), &b).Close()
	}
	first, err := w.db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = first.Rollback(t.Context()) }()
	servers.NoError(t, finish(first, 1))
	other := make(chan error, 1)
	go func() { other <- postgres.InTx(t.Context(), w.db, func(tx pgx.Tx) error { return finish(tx, 2) }) }()
	servers.AwaitBlocked(t, w.db, 1)
	servers.NoError(t, first.Commit(t.Context()))
	servers.NoError(t, <-other)
	if got := w.now(""); got != "; 300 succeeded, 100 succeeded; refunded" {
		t.Error(got)
	}
}
