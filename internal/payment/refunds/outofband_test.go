package refunds_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// byHand makes a refund at the provider, as somebody does in its dashboard; it returns its place.
func (w *world) byHand(amount money.Amount, status payprovider.RefundStatus) int {
	w.provider.add(amount, status, nil)
	return len(w.provider.refunds) - 1
}

// hear notes what an event tells of a refund at the provider, as the worker of events does.
func (w *world) hear(at int) {
	w.t.Helper()
	r := w.provider.refunds[at]
	err := postgres.InTx(w.t.Context(), w.db, func(tx pgx.Tx) error {
		if _, err := payment.Lock(w.t.Context(), tx, w.bought); err != nil {
			return err
		}
		if _, err := payment.WakeRefunds(w.t.Context(), tx, []uuid.UUID{w.bought}, nil); err != nil {
			return err
		}
		if _, err := refunds.RecordOutOfBand(w.t.Context(), tx, []refunds.OutOfBand{{ProviderID: r.ID, PurchaseID: w.bought, Amount: r.Amount, Currency: r.Currency, State: payment.RefundStateOf(r.Status)}}); err != nil {
			return err
		}
		var b pgx.Batch
		purchase.QueueFollow(&b, w.bought)
		return tx.SendBatch(w.t.Context(), &b).Close()
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// all returns the refunds of the purchase: ours, and those out of band.
func (w *world) all() (ours, others []payment.Refund) {
	w.t.Helper()
	of, err := payment.RefundsOfPurchases(w.t.Context(), w.db, []uuid.UUID{w.bought})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range of[w.bought] {
		if r.Reason == payment.RefundOutOfBand {
			others = append(others, r)
		} else {
			ours = append(ours, r)
		}
	}
	return ours, others
}

func (w *world) timeline() (said string) {
	w.t.Helper()
	steps, err := payment.StepsOf(w.t.Context(), w.db, []uuid.UUID{w.bought})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range steps {
		said += " " + s.Event
		if s.Detail != nil {
			said += "(" + *s.Detail + ")"
		}
	}
	return said
}

// Somebody has refunded a part at the provider, or all of it, before ours: known by an event or not.
func TestARefundByHandLeavesOursTheRest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		byHand []money.Amount
		heard  bool
		ours   money.Amount
		calls  string
	}{
		"a part, unknown":     {[]money.Amount{100}, false, 300, "create list create"},
		"a part, heard of":    {[]money.Amount{100}, true, 300, "list create"},
		"two parts":           {[]money.Amount{100, 250}, false, 50, "create list create"},
		"all of it":           {[]money.Amount{400}, false, 0, "create list"},
		"all of it, heard of": {[]money.Amount{400}, true, 0, "list"},
		"all of it in parts":  {[]money.Amount{150, 250}, false, 0, "create list"},
	} {
		w := newWorld(t)
		for _, amount := range c.byHand {
			if at := w.byHand(amount, payprovider.RefundSucceeded); c.heard {
				w.hear(at)
			}
		}
		if result := w.run(); result != refunds.Finished {
			t.Errorf("%s: %s", name, result)
		}
		if got := strings.Join(w.provider.calls, " "); got != c.calls {
			t.Errorf("%s: called %s", name, got)
		}
		ours, others := w.all()
		if len(ours) != 1 || ours[0].State != payment.RefundSucceeded || ours[0].Amount != c.ours || len(others) != len(c.byHand) || w.provider.returned() != w.provider.captured {
			t.Errorf("%s: ours are %+v, others %+v, %d are back", name, ours, others, w.provider.returned())
		}
		keys := make(map[string]money.Amount)
		for _, n := range w.provider.creates {
			if before, used := keys[n.Key]; used && before != n.Amount {
				t.Errorf("%s: the key %s has two amounts", name, n.Key)
			}
			keys[n.Key] = n.Amount
		}
		if said := w.timeline(); !c.heard && strings.Count(said, "refunded-out-of-band(") != len(c.byHand) || !strings.Contains(said, "refunded("+money.Currency("JPY").Format(c.ours)+" of the "+money.Currency("JPY").Format(400)+" that the card has paid)") {
			t.Errorf("%s: the timeline says %s", name, said)
		}
		w.run() // an event
		w.expect(payment.RefundSucceeded, purchase.Refunded, len(w.provider.refunds))
		fixture.Sound(t, w.db)
	}
}

// What was refused stays so until an operator has it tried again: then it asks for the rest, and
// what somebody has refunded in the meantime ends it.
func TestARefusedRefundFollowsWhatIsRefundedByHand(t *testing.T) {
	t.Parallel()
	w := refusedWorld(t, payprovider.RefundFailed)
	w.provider.status = payprovider.RefundSucceeded
	w.hear(w.byHand(100, payprovider.RefundSucceeded))
	w.run()
	if r := w.expect(payment.RefundFailed, purchase.Refunding, 2); r.Amount != 300 || !r.ForOperator() || r.ProviderID != nil {
		t.Errorf("got %+v", r)
	}
	if _, err := service(w).Retry(t.Context(), request(job.KindRefundRetry), w.id, "operator:ops"); err != nil {
		t.Fatal(err)
	}
	w.run()
	if r := w.expect(payment.RefundSucceeded, purchase.Refunded, 3); r.Amount != 300 || w.provider.returned() != 400 {
		t.Errorf("got %+v", r)
	}
	fixture.Sound(t, w.db)

	w = refusedWorld(t, payprovider.RefundFailed)
	w.hear(w.byHand(400, payprovider.RefundSucceeded))
	for range 2 { // the second time after a further event of the purchase
		w.run()
		if r := w.expect(payment.RefundSucceeded, purchase.Refunded, 2); r.Amount != 0 || r.ForOperator() || r.ProviderID != nil || r.DueAt != nil || r.Faults != 0 || r.Failure != nil {
			t.Errorf("nobody has to do anything any more, and what was refused is not its refund: %+v", r)
		}
	}
	fixture.Sound(t, w.db)
}

// A bank sends back what somebody had refunded by hand, after ours has given back the rest: that
// part is owed again, and an operator sees to it.
func TestARefundByHandThatFailsLaterIsOwedAgain(t *testing.T) {
	t.Parallel()
	for name, byHand := range map[string]money.Amount{"a part": 100, "all": 400} {
		w := newWorld(t)
		at := w.byHand(byHand, payprovider.RefundSucceeded)
		w.run()
		w.expect(payment.RefundSucceeded, purchase.Refunded, len(w.provider.refunds))
		w.provider.refunds[at].Status = payprovider.RefundFailed
		w.hear(at)
		w.hear(at) // once more
		ours, _ := w.all()
		if len(ours) != 2 || ours[1].State != payment.RefundFailed || ours[1].Amount != byHand || !ours[1].ForOperator() || ours[1].Failure == nil || waiting(w) != 1 {
			t.Fatalf("%s: ours are %+v", name, ours)
		}
		w.expect(payment.RefundSucceeded, purchase.Refunding, len(w.provider.refunds))
		fixture.Sound(t, w.db)
		w.id = ours[1].ID
		if _, err := service(w).Retry(t.Context(), request(job.KindRefundRetry), w.id, "operator:ops"); err != nil {
			t.Fatal(err)
		}
		w.run()
		if w.expect(payment.RefundSucceeded, purchase.Refunded, len(w.provider.refunds)); w.provider.returned() != 400 {
			t.Errorf("%s: %d are back", name, w.provider.returned())
		}
		fixture.Sound(t, w.db)
	}
}

// An operator refunds at the provider, and says that ours is done before a worker has looked: ours
// is then only about what that has left. When the bank sends it back later, it is owed again.
func TestWhatIsResolvedByHandIsWhatRefundsByHandHaveLeft(t *testing.T) {
	t.Parallel()
	for name, byHand := range map[string]money.Amount{"a part": 100, "all": 400} {
		for how, resolve := range map[string]func(w *world) error{
			"one": func(w *world) error {
				return outcome(service(w).Resolve(t.Context(), request(job.KindRefundResolve), access.Everything(), w.id, "operator:ops", "refunded in the dashboard"))
			},
			"those of the campaign": func(w *world) error {
				r := request(job.KindRefundResolve)
				r.CampaignID = w.refund().CampaignID
				return outcome(service(w).ResolveCampaign(t.Context(), r, access.Everything(), "operator:ops", "refunded in the dashboard"))
			},
		} {
			w := refusedWorld(t, payprovider.RefundFailed)
			at := w.byHand(byHand, payprovider.RefundSucceeded)
			w.hear(at)
			if err := resolve(w); err != nil {
				t.Fatalf("%s, %s: %v", name, how, err)
			}
			if r := w.expect(payment.RefundResolved, purchase.Refunded, 2); r.Amount != 400-byHand || r.ProviderID != nil {
				t.Errorf("%s, %s: resolved is %+v", name, how, r)
			}
			fixture.Sound(t, w.db)
			w.provider.refunds[at].Status = payprovider.RefundFailed
			w.run()
			ours, _ := w.all()
			if len(ours) != 2 || ours[1].State != payment.RefundFailed || ours[1].Amount != byHand || waiting(w) != 1 {
				t.Errorf("%s, %s: nobody owes what the bank has sent back: %+v", name, how, ours)
			}
			w.expect(payment.RefundResolved, purchase.Refunding, 2)
			fixture.Sound(t, w.db)
		}
	}
}

// A further attempt that would give back more than is left is refused where it is stored: then
// nothing is called.
func TestNoAttemptAsksForMoreThanIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hear(w.byHand(100, payprovider.RefundSucceeded))
	r := w.refund()
	for amount, ok := range map[money.Amount]bool{301: false, 300: true} {
		r.Attempt, r.Amount = r.Attempt+1, amount
		if err := refunds.Write(t.Context(), w.db, &r, 0, nil); (err == nil) != ok {
			t.Errorf("%d of 300: %v", amount, err)
		}
		r = w.refund()
	}
}

// A refund by hand fails after a worker has read what it left, and before it has stored that: nobody
// else asks for that money.
func TestARefundIsNotMadeSmallerForOneThatHasFailedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.byHand(100, payprovider.RefundSucceeded)
	w.hear(at)
	r := w.refund()
	r.Attempt, r.Amount = 1, 300
	w.provider.refunds[at].Status = payprovider.RefundFailed
	w.hear(at)
	if err := refunds.Write(t.Context(), w.db, &r, 0, nil); err == nil {
		t.Error("it is written")
	}
	w.run()
	if r := w.expect(payment.RefundSucceeded, purchase.Refunded, 2); r.Amount != 400 || w.provider.returned() != 400 {
		t.Errorf("got %+v", r)
	}
	fixture.Sound(t, w.db)
}

// Two that are to be made at once would both ask for the same money.
func TestOneRefundOfAPurchaseIsMadeAtATime(t *testing.T) {
	t.Parallel()
	w := refusedWorld(t, payprovider.RefundFailed)
	second := uuidv7.New()
	w.sql(`UPDATE refunds SET amount = 300 WHERE id = $1`)
	servers.Exec(t, w.db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		SELECT $1, purchase_id, 2, campaign_id, user_id, method, 100, currency, reason, 'failed' FROM refunds`, second)
	retry := func(id uuid.UUID) error {
		return outcome(service(w).Retry(t.Context(), request(job.KindRefundRetry), id, "operator:ops"))
	}
	if err := retry(w.id); err != nil {
		t.Fatal(err)
	}
	if err := retry(second); err == nil || !strings.Contains(err.Error(), "another refund of the purchase is being made") {
		t.Errorf("both are open: %v", err)
	}
	if _, err := w.db.Exec(t.Context(), `UPDATE refunds SET state = 'open', attempt = 1, attempt_at = clock_timestamp() WHERE id = $1`, second); err == nil {
		t.Error("the schema allows both to be made")
	}
	w.provider.status = payprovider.RefundSucceeded
	w.run()
	w.expect(payment.RefundSucceeded, purchase.Refunding, 2)
	if err := retry(second); err != nil {
		t.Fatal(err)
	}
	w.id = second
	w.run()
	w.expect(payment.RefundSucceeded, purchase.Refunded, 3)
	fixture.Sound(t, w.db)
}

// Two refunds of a purchase end in transactions that do not see each other: the later one waits
// for the earlier, and the purchase is refunded.
func TestTheLastOfTwoRefundsThatEndAtOnceRefundsThePurchase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	second := uuidv7.New()
	w.sql(`UPDATE refunds SET amount = 300 WHERE id = $1`)
	servers.Exec(t, w.db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		SELECT $1, purchase_id, 2, campaign_id, user_id, method, 100, currency, reason, 'failed' FROM refunds`, second)
	finish := func(tx pgx.Tx, id uuid.UUID) error {
		var b pgx.Batch
		b.Queue(`UPDATE refunds SET state = 'succeeded', finished_at = clock_timestamp(), due_at = NULL WHERE id = $1`, id)
		purchase.QueueFollow(&b, w.bought)
		return tx.SendBatch(t.Context(), &b).Close()
	}
	first, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Rollback(t.Context()) }()
	if err := finish(first, w.id); err != nil {
		t.Fatal(err)
	}
	other := make(chan error, 1)
	go func() { other <- postgres.InTx(t.Context(), w.db, func(tx pgx.Tx) error { return finish(tx, second) }) }()
	servers.Eventually(t, "the second waits, or has ended", func() bool {
		return len(other) == 1 || servers.Value[bool](t, w.db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-other; err != nil {
		t.Fatal(err)
	}
	w.expect(payment.RefundSucceeded, purchase.Refunded, 0)
}

// A call that was lost may arrive after its successor. Of a part of what is left both could be made:
// the successor has the same key.
func TestTheKeyOfAPartIsNotReplacedWhileItsCallMayArrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql(`UPDATE refunds SET amount = 300 WHERE id = $1`)
	servers.Exec(t, w.db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		SELECT gen_random_uuid(), purchase_id, 2, campaign_id, user_id, method, 100, currency, reason, 'failed' FROM refunds`)
	first := "re:" + w.id.String() + ":1"
	w.provider.keys[first] = answer{err: errLost}
	for range 5 {
		w.run()
	}
	for _, n := range w.provider.creates {
		if n.Key != first {
			t.Errorf("a key is %s", n.Key)
		}
	}
	w.sql(`UPDATE refunds SET attempt_at = attempt_at - interval '23 hours' WHERE id = $1`)
	w.run()
	w.expect(payment.RefundSucceeded, purchase.Refunding, 1)
	fixture.Sound(t, w.db)
}

// An event about a refund that was resolved by hand is late: what rings is the provider's word.
func TestMoneyIsCalledPaidTwiceOnlyWhenTheProviderSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		there func(w *world)
		rings float64
	}{
		"it has failed there":               {func(*world) {}, 0},
		"ours was made after all":           {func(w *world) { w.provider.set(payprovider.RefundPending, "") }, 1},
		"by hand, too":                      {func(w *world) { w.byHand(400, payprovider.RefundSucceeded) }, 1},
		"a part of it by hand":              {func(w *world) { w.byHand(1, payprovider.RefundSucceeded) }, 1},
		"somebody tried, and it has failed": {func(w *world) { w.byHand(400, payprovider.RefundFailed) }, 0},
	} {
		w := refusedWorld(t, payprovider.RefundFailed)
		registry := prometheus.NewRegistry()
		w.runner = refunds.NewRunner(w.db, w.provider, refunds.Settings{Lease: 1e12, Recheck: 1e10}, servers.Logger(t), registry)
		if err := outcome(service(w).Resolve(t.Context(), request(job.KindRefundResolve), access.Everything(), w.id, "operator:ops", "by bank transfer")); err != nil {
			t.Fatal(err)
		}
		c.there(w)
		if woken, err := payment.WakeRefunds(t.Context(), w.db, []uuid.UUID{w.bought}, nil); err != nil || len(woken) != 1 {
			t.Fatalf("%s: woken are %v, %v", name, woken, err)
		}
		away := &payprovider.Error{Kind: payprovider.KindUnavailable}
		w.provider.fault = once("list", 1, away, true)
		w.run()
		if r := w.refund(); r.State != payment.RefundResolved || r.DueAt == nil || r.FinishedAt == nil {
			t.Errorf("%s: while the provider is away: %+v", name, r)
		}
		w.run()
		w.run()
		w.expect(payment.RefundResolved, purchase.Refunded, len(w.provider.refunds))
		if r := w.refund(); r.DueAt != nil || r.Faults != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if got := paidTwice(t, registry); got != c.rings {
			t.Errorf("%s: it rings %g times", name, got)
		}
		if said := w.timeline(); strings.Contains(said, "although ours was resolved by hand") != (c.rings == 1) {
			t.Errorf("%s: the timeline says %s", name, said)
		}
		fixture.Sound(t, w.db)
	}
}

func paidTwice(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "triprize_refunds_paid_twice_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}

// Resolving a campaign does exactly what one by one would be done.
func TestTheRefundsOfACampaignAreResolvedTogether(t *testing.T) {
	t.Parallel()
	w := refusedWorld(t, payprovider.RefundFailed)
	campaignID := w.refund().CampaignID
	w.hear(w.byHand(1, payprovider.RefundFailed))
	external, wallet := otherRefund(t, w, payment.RefundExternal), otherRefund(t, w, payment.RefundToWallet)
	other := refusedWorldOn(t, w)
	resolve := func(asApp bool) string {
		t.Helper()
		r := request(job.KindRefundsResolve)
		r.CampaignID = campaignID
		done, err := service(w).ResolveCampaign(t.Context(), r, grantOf(asApp), "operator:ops", "by bank transfer")
		if err != nil || done.Job.Problem != nil {
			t.Fatalf("%+v, %v", done.Job.Problem, err)
		}
		return string(done.Job.Result)
	}
	state := func(id uuid.UUID) payment.RefundState {
		r, err := payment.GetRefund(t.Context(), w.db, access.Everything(), id)
		if err != nil {
			t.Fatal(err)
		}
		return r.State
	}
	servers.Exec(t, w.db, `UPDATE refunds SET state = 'open', stuck = true, lease_until = clock_timestamp() + interval '1 hour' WHERE id = $1`, w.id)
	if got := resolve(false); !strings.Contains(got, `"resolved":0,"more":false`) {
		t.Errorf("one that a worker has: %s", got)
	}
	servers.Exec(t, w.db, `UPDATE refunds SET lease_until = NULL WHERE id = $1`, w.id)
	if got := resolve(false); !strings.Contains(got, `"resolved":1,"more":false`) || state(external) != payment.RefundListed {
		t.Errorf("an operator: %s, the external one is %s", got, state(external))
	}
	r := w.expect(payment.RefundResolved, purchase.Refunded, 2)
	if *r.ResolvedBy != "operator:ops" || *r.ResolveReason != "by bank transfer" || !strings.Contains(w.timeline(), "refund-resolved(by bank transfer)") {
		t.Errorf("got %+v, the timeline says %s", r, w.timeline())
	}
	if got := resolve(true); !strings.Contains(got, `"resolved":1,"more":false`) || state(external) != payment.RefundResolved || state(wallet) != payment.RefundSucceeded {
		t.Errorf("an app: %s", got)
	}
	if got := resolve(false) + resolve(true); strings.Contains(got, `"resolved":1`) || state(other) != payment.RefundFailed {
		t.Errorf("again: %s; that of another campaign is %s", got, state(other))
	}
	unknown := request(job.KindRefundsResolve)
	unknown.CampaignID = uuid.New()
	if err := outcome(service(w).ResolveCampaign(t.Context(), unknown, access.Everything(), "operator:ops", "r")); err == nil {
		t.Error("an unknown campaign")
	}
}

// refusedWorldOn is a refused refund of another campaign in the same database.
func refusedWorldOn(t *testing.T, w *world) uuid.UUID {
	t.Helper()
	other := worldOn(t, w.db)
	other.provider.status = payprovider.RefundFailed
	other.run()
	return other.id
}

// A batch has an end, and says that there is more.
func TestTheRefundsOfACampaignAreResolvedInBatches(t *testing.T) {
	t.Parallel()
	w := refusedWorld(t, payprovider.RefundFailed)
	campaignID := w.refund().CampaignID
	servers.Exec(t, w.db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		SELECT gen_random_uuid(), gen_random_uuid(), 1, $1, 'u', 'card', 100, 'JPY', 'cancelled', 'failed' FROM generate_series(1, $2)`, campaignID, refunds.MostResolved)
	for _, want := range []string{`"resolved":1000,"more":true`, `"resolved":1,"more":false`} {
		r := request(job.KindRefundsResolve)
		r.CampaignID = campaignID
		done, err := service(w).ResolveCampaign(t.Context(), r, access.Everything(), "operator:ops", "r")
		if err != nil || !strings.Contains(string(done.Job.Result), want) {
			t.Errorf("%s, %v; wanted %s", done.Job.Result, err, want)
		}
	}
}

// Two refunds of a purchase are resolved one after the other: the first takes of what is left.
func TestTwoRefundsOfAPurchaseThatAreResolvedTogetherAreNoMoreThanIsLeft(t *testing.T) {
	t.Parallel()
	w := refusedWorld(t, payprovider.RefundFailed)
	second := uuidv7.New()
	w.sql(`UPDATE refunds SET amount = 300 WHERE id = $1`)
	servers.Exec(t, w.db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		SELECT $1, purchase_id, 2, campaign_id, user_id, method, 100, currency, reason, 'failed' FROM refunds`, second)
	w.hear(w.byHand(250, payprovider.RefundSucceeded))
	for _, want := range []string{`"resolved":1,"more":true`, `"resolved":1,"more":false`} {
		r := request(job.KindRefundsResolve)
		r.CampaignID = w.refund().CampaignID
		done, err := service(w).ResolveCampaign(t.Context(), r, access.Everything(), "operator:ops", "r")
		if err != nil || !strings.Contains(string(done.Job.Result), want) {
			t.Errorf("%s, %v; wanted %s", done.Job.Result, err, want)
		}
	}
	if ours, _ := w.all(); len(ours) != 2 || ours[0].Amount+ours[1].Amount != 150 {
		t.Errorf("150 were left: %+v", ours)
	}
	fixture.Sound(t, w.db)
}
