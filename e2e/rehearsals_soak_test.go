//go:build soak

package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/platform/keyring"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
	"triprize/sandbox/stripesim"
)

// Processes and servers are frozen, stopped and started again.
func TestTheAlertsOfProcessesAndServersAreHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{Private: true})
	id, worker, scheduler, api := r.Campaign(6), r.Workers[0], r.Schedulers[0], r.APIs[0]
	r.provoke(func() {
		signal(t, syscall.SIGSTOP, worker)
		r.Buy(fleet.Order{Campaign: id, User: "mina"})
	}, func() { signal(t, syscall.SIGCONT, worker) },
		"TriprizeNoWorker", "TriprizeWorkerSilent", "TriprizeJobsStuck purchase", "TriprizeProcessDown")
	r.provoke(func() { signal(t, syscall.SIGSTOP, r.Stack.Redis.Child) }, func() { signal(t, syscall.SIGCONT, r.Stack.Redis.Child) }, "TriprizeRedisAway")
	memory := func(most string) {
		if err := r.Redis.ConfigSet(t.Context(), "maxmemory", most).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.provoke(func() { memory("1") }, func() { // it answers, and no process can announce itself
		for _, wrong := range []string{"TriprizeNoWorker", "TriprizeNoScheduler", "TriprizeWorkerSilent"} {
			if firing, _ := r.fires(wrong); firing {
				t.Errorf("with a Redis that is full %s fires", wrong)
			}
		}
		memory("0")
	}, "TriprizeRedisAway")
	r.provoke(func() { signal(t, syscall.SIGSTOP, api) }, func() { signal(t, syscall.SIGCONT, api) }, "TriprizeNoAPI")
	readOnly := func(value string) {
		servers.Exec(t, r.DB, `ALTER SYSTEM SET default_transaction_read_only = `+value)
		servers.Exec(t, r.DB, `SELECT pg_reload_conf()`)
	}
	buying, end := context.WithCancel(t.Context())
	var buyers sync.WaitGroup
	r.provoke(func() {
		readOnly("on")
		buyers.Go(func() {
			for buying.Err() == nil {
				r.Buy(fleet.Order{Campaign: id, User: "otto", Key: "again"})
				time.Sleep(100 * time.Millisecond)
			}
		})
	}, func() { readOnly("off") }, "TriprizeWritesFailing")
	end()
	buyers.Wait()
	r.provoke(func() {
		if err := r.Stack.Postgres.Stop(); err != nil {
			t.Fatal(err)
		}
	}, func() { startChild(t, r.Stack.Postgres.Child) }, "TriprizePostgresAway")
	r.audit()
	r.provoke(func() { stopChild(t, scheduler) }, func() { r.audit(); startChild(t, scheduler) }, "TriprizeNoScheduler", "TriprizeAuditNotLooking")
	r.provoke(func() { signal(t, syscall.SIGSTOP, api, worker, scheduler) }, func() { signal(t, syscall.SIGCONT, api, worker, scheduler) }, "TriprizeNothingScraped")
}

// Rows stay locked, connections run out, and jobs end their workers.
func TestTheAlertsOfWorkThatDoesNotGoOnAreHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{Private: true, Restart: 200 * time.Millisecond,
		Env: []string{"TRIPRIZE_POSTGRES_MAX_CONNECTIONS=8", "TRIPRIZE_WORKER_MAX_DELIVERIES=2", "TRIPRIZE_TEST_FAILPOINTS=sale.commit@poison=kill"}})
	id, other := r.Campaign(20), r.Campaign(20)
	r.provoke(func() { r.Buy(fleet.Order{Campaign: other, User: "poison"}) }, func() {}, "TriprizeJobsGivenUp")

	unlock, holding := fixture.LockCampaign(t, r.DB, id), sync.WaitGroup{}
	r.provoke(func() {
		r.Buy(fleet.Order{Campaign: id, User: "mina"})
		for range 8 {
			holding.Go(func() {
				r.Hold(fleet.HoldOrder{Campaign: id, User: uuid.NewString(), Quantity: 1})
			})
		}
	}, unlock, "TriprizeCampaignLocked", "TriprizeLockTimeouts")
	holding.Wait()

	wallet := r.Wallet("mina", 1000)
	tx, err := r.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	busy, enough := sync.WaitGroup{}, make(chan struct{})
	r.provoke(func() {
		servers.Exec(t, tx, `LOCK TABLE jobs, wallets IN ACCESS EXCLUSIVE MODE`)
		for range 20 { // each share of the connections is taken, and what needs none of these shares waits
			for _, ask := range []func(){
				func() { r.Read(wallet) },
				func() { r.Hold(fleet.HoldOrder{Campaign: other, User: uuid.NewString(), Quantity: 1}) },
				func() { r.Execute(wallet+"/credit", fleet.Fields{"amount": 1}) },
				func() { r.Buy(fleet.Order{Campaign: other, User: uuid.NewString()}) },
			} {
				busy.Go(func() {
					for {
						select {
						case <-enough:
							return
						default:
							ask()
						}
					}
				})
			}
		}
	}, func() { close(enough); _ = tx.Rollback(t.Context()) }, "TriprizePoolExhausted")
	busy.Wait()
	r.provoke(func() { deadlock(r, id) }, func() { servers.Exec(t, r.DB, `SELECT pg_stat_reset()`) }, "TriprizeDeadlocks purchase")
}

// deadlock locks in the wrong order, as by hand in psql: a worker has the campaign and waits for a
// table, and psql has the table and waits for the campaign. The worker's wait is looked at first.
func deadlock(r *rehearsal, id uuid.UUID) {
	servers.Exec(r.T, r.DB, `ALTER SYSTEM SET deadlock_timeout = '60ms'`) // a worker waits for 100 ms
	servers.Exec(r.T, r.DB, `SELECT pg_reload_conf()`)
	for range 20 {
		r.Buy(fleet.Order{Campaign: id, User: "mina"})
		servers.Exec(r.T, r.DB, `DO $$ BEGIN
			SET LOCAL deadlock_timeout = '10s';
			LOCK TABLE purchase_items IN SHARE MODE;
			FOR n IN 1..2000 LOOP
				EXIT WHEN EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'purchase_items'::regclass);
				PERFORM pg_sleep(0.002);
			END LOOP;
			PERFORM FROM campaigns WHERE id = '`+id.String()+`' FOR NO KEY UPDATE;
		END $$`)
		for range 150 { // an idle session sends its statistics within ten seconds
			if time.Sleep(100 * time.Millisecond); r.Deadlocks() > 0 {
				return
			}
		}
	}
	r.T.Fatal("no worker was in a deadlock")
}

// A worker is frozen in the middle of its work, and another one gets all of it. Later one dies.
func TestTheAlertOfWorkThatNobodyHoldsIsHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{}, "TRIPRIZE_TEST_FAILPOINTS=sale.commit@last=stop")
	id, first, scheduler := r.Campaign(20), r.Workers[0], r.Schedulers[0]
	r.provoke(func() {
		r.Crowd(60, func(int) fleet.Order { return fleet.Order{Campaign: id, User: "last"} })
		servers.Eventually(t, "the worker has stopped in the middle of its work", func() bool { return isStopped(first) })
		stopChild(t, scheduler)
		r.worker()
		servers.Eventually(t, "the other worker is scraped", func() bool { return r.value(`count(up{job="triprize-worker"} == 1)`) == 1 })
		startChild(t, scheduler)
	}, func() { first.Kill() }, "TriprizeTasksWithoutLease purchase")
}

// Relays that are silent, a wrong key, a lock that nobody frees; and rows that somebody changed.
func TestTheAlertsOfDrawsAndTheAuditAreHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{Beacon: 2})
	relays := func(away string) {
		for _, relay := range r.Beacon.Relays() {
			if err := relay.SetFaults(drandsim.Faults{Away: away}); err != nil {
				t.Fatal(err)
			}
		}
	}
	waiting, drawn := drawable(r.System, true), drawable(r.System, false)
	fixture.SellOut(t, r.DB, drawn)
	r.AwaitDrawn(drawn)
	r.provoke(func() { relays(drandsim.AwayError); fixture.SellOut(t, r.DB, waiting) }, func() { relays("") }, "TriprizeDrawStuck")
	r.AwaitDrawn(waiting)
	r.broken(drawn)

	right := r.Workers[0]
	stopChild(t, right)
	wrong := r.worker("TRIPRIZE_DRAW_SECRET_KEY=" + keyring.NewKey())
	var failing []uuid.UUID // so many that more than four come again in ten seconds, whatever their pauses are
	for range 24 {
		failing = append(failing, r.Campaign(1))
	}
	r.provoke(func() {
		for _, id := range failing {
			fixture.SellOut(t, r.DB, id)
		}
	}, func() { stopChild(t, wrong); startChild(t, right) }, "TriprizeDrawKeyWrong", "TriprizeDrawFailing", "TriprizeRetries")
	r.AwaitDrawn(failing...)

	held, scheduler := r.Campaign(3), r.Schedulers[0]
	stopChild(t, right)
	frozen := r.worker("TRIPRIZE_TEST_FAILPOINTS=draw.record@" + held.String() + "=stop")
	r.provoke(func() {
		stopChild(t, scheduler)
		r.Buy(fleet.Order{Campaign: held, User: "mina", Quantity: 6, Wait: true})
		servers.Eventually(t, "the worker has stopped with the lock", func() bool { return isStopped(frozen) })
	}, func() { startChild(t, scheduler); startChild(t, right) }, "TriprizeExecutionLockHeld")
	r.AwaitDrawn(held)
	signal(t, syscall.SIGCONT, frozen)
}

// broken changes rows of a drawn campaign behind the triggers, and repairs them.
func (r *rehearsal) broken(campaign uuid.UUID) {
	change := func(sql string) func() {
		return func() {
			tx, err := r.DB.Begin(r.T.Context())
			if err != nil {
				r.T.Fatal(err)
			}
			servers.Exec(r.T, tx, `SET LOCAL session_replication_role = replica`)
			servers.Exec(r.T, tx, sql, campaign)
			if err := tx.Commit(r.T.Context()); err != nil {
				r.T.Fatal(err)
			}
			r.audit()
		}
	}
	r.provoke(change(`UPDATE campaigns SET positions_sold = positions_sold - 1 WHERE id = $1`), change(`UPDATE campaigns SET positions_sold = positions_sold + 1 WHERE id = $1`),
		"TriprizeAuditViolation")
	r.provoke(change(`INSERT INTO purchase_items SELECT (SELECT max(id::text)::uuid FROM purchases WHERE campaign_id = $1), layer, col, price
			FROM purchase_items WHERE purchase_id = (SELECT min(id::text)::uuid FROM purchases WHERE campaign_id = $1)`),
		change(`DELETE FROM purchase_items i WHERE purchase_id = (SELECT max(id::text)::uuid FROM purchases WHERE campaign_id = $1) AND EXISTS (
			SELECT FROM purchase_items WHERE purchase_id = (SELECT min(id::text)::uuid FROM purchases WHERE campaign_id = $1) AND (layer, col) = (i.layer, i.col))`),
		"TriprizeOversold")
	r.provoke(change(`UPDATE draws SET winners = winners || winners WHERE campaign_id = $1`),
		change(`UPDATE draws SET winners = (SELECT jsonb_agg(w ORDER BY n) FROM jsonb_array_elements(winners) WITH ORDINALITY AS x (w, n) WHERE n <= jsonb_array_length(winners) / 2) WHERE campaign_id = $1`),
		"TriprizeDrawnTwice")
}

// Payments, refunds and books that need a person, and apps that hear of nothing. At the beginning
// all is well, and every panel of the dashboards has data.
func TestTheAlertsOfMoneyAndWebhooksAreHeard(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(gone.Close)
	r := rehearse(t, fleet.Options{Beacon: 1, Env: []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8"},
		Sandbox: &stripesim.Settings{Later: 50 * time.Millisecond, Dir: filepath.Join(t.TempDir(), "sandbox")}})
	id := r.Campaign(10)
	refused := buyPaid(r.System, id, "alice", "pm_card_refundFail")
	paid := buyPaid(r.System, id, "bob", "pm_card_visa")
	r.panels()

	r.provoke(func() { r.AwaitJob(0, r.Cancel(r.App, refused, uuid.NewString(), "").ID) }, func() {
		r.tool("refunds", "resolve", viewPurchase(r.System, refused).Refund().ID, "--reason", "by bank transfer")
	}, "TriprizeRefundsWaitForOperator")
	r.provoke(func() {
		servers.Exec(t, r.DB, `INSERT INTO payment_differences (id, kind, object_id, here_amount, here_currency, detail) VALUES (gen_random_uuid(), 'unknown-there', 'pi_lost', 500, 'JPY', 'settled here')`)
	}, func() {
		r.tool("reconciliation", "explain", servers.Value[uuid.UUID](t, r.DB, `SELECT id FROM payment_differences`).String(), "--reason", "a rehearsal")
	}, "TriprizePaymentDifferences unknown-there")

	key := func(k stripesim.Key) {
		if err := r.Sandbox.SetKey(k); err != nil {
			t.Fatal(err)
		}
	}
	r.provoke(func() {
		key(stripesim.Key{Expired: true})
		buyByCard(r.System, id, "carol", "pm_card_visa")
	}, func() {
		key(stripesim.Key{})
		r.tool("payments", "retry", servers.Value[uuid.UUID](t, r.DB, `SELECT purchase_id FROM payments WHERE waiting_for = 'operator'`).String())
	}, "TriprizePaymentsWaitForOperator", "TriprizeStripePermissionMissing", "TriprizeStripeKeyRefused")
	r.provoke(func() {
		key(stripesim.Key{Lacks: []string{"charge_write"}})
		r.AwaitJob(0, r.Cancel(r.App, paid, uuid.NewString(), "").ID)
		servers.Eventually(t, "the refund waits for an operator", func() bool {
			return viewPurchase(r.System, paid).Refund().ID != "" && r.toolSays("refunds", "list", paid.String())
		})
		r.tool("refunds", "resolve", viewPurchase(r.System, paid).Refund().ID, "--reason", "by bank transfer")
		key(stripesim.Key{})
		refundByHand(r.System, paid)
	}, func() {}, "TriprizeRefundPaidTwice")

	r.provoke(func() {
		r.Sandbox.Stop()
		buyByCard(r.System, id, "gerd", "pm_card_visa")
	}, r.Sandbox.Start, "TriprizeSweepStale missed-events", "TriprizeProviderAway")
	r.provoke(func() {
		a := askProvider(r.Sandbox.URL, fleet.SandboxKey, http.MethodPost, "/v1/payment_intents", url.Values{"amount": {"500"}, "currency": {"jpy"}, "payment_method": {"pm_card_visa"},
			"payment_method_types[]": {"card"}, "confirm": {"true"}, "metadata[purchase_id]": {refused.String()}})
		if a.Status != http.StatusOK {
			t.Fatal(a)
		}
	}, func() {}, "TriprizeProviderContradicts")

	endpoint := fleet.As[struct{ ID uuid.UUID }](t, r.Execute("/v1/webhook-endpoints", fleet.Fields{"url": gone.URL, "events": []string{"purchase.*"}})).ID
	r.provoke(func() { r.Buy(fleet.Order{Campaign: id, User: "dora", Wait: true}) },
		func() { r.Do(0, r.App, http.MethodDelete, "/v1/webhook-endpoints/"+endpoint.String(), nil, nil) }, "TriprizeWebhookEndpointDisabled")
	failing := fleet.As[struct{ ID uuid.UUID }](t, r.Execute("/v1/webhook-endpoints", fleet.Fields{"url": gone.URL, "events": []string{"hold.*"}})).ID
	r.provoke(func() {
		servers.Exec(t, r.DB, `UPDATE webhook_endpoints SET failing_since = clock_timestamp() - interval '1 hour', failures = 1 WHERE id = $1`, failing)
	}, func() { r.Do(0, r.App, http.MethodDelete, "/v1/webhook-endpoints/"+failing.String(), nil, nil) }, "TriprizeWebhookEndpointFailing")
	paused := "asynq:{" + r.Settings.Redis.Namespace + "-webhook}:paused"
	r.Execute("/v1/webhook-endpoints", fleet.Fields{"url": gone.URL, "events": []string{"purchase.*"}})
	r.provoke(func() {
		r.Redis.Set(t.Context(), paused, 1, 0)
		r.Buy(fleet.Order{Campaign: id, User: "eve", Wait: true})
	}, func() { r.Redis.Del(t.Context(), paused) }, "TriprizeWebhooksLate")

	// Cards are switched off with a purchase under way: then no process is in test mode, either.
	worker, scheduler := r.Workers[0], r.Schedulers[0]
	stopChild(t, worker)
	stopChild(t, scheduler)
	r.listen["worker"], r.listen["scheduler"] = nil, nil
	const off = "TRIPRIZE_PAYMENTS_STRIPE_KEY="
	without := r.worker(off)
	r.RunScheduler(off, "TRIPRIZE_SCHEDULER_LISTEN="+r.address("scheduler"))
	r.provoke(func() {
		buyByCard(r.System, id, "frida", "pm_card_visa")
		stopChild(t, r.APIs[0])
	}, func() {
		servers.Eventually(t, "no process is in test mode", func() bool { firing, known := r.fires("TriprizePaymentsTestMode"); return known && !firing })
		startChild(t, r.APIs[0])
		stopChild(t, without)
		stopChild(t, r.Schedulers[1])
		r.worker()
		r.RunScheduler("TRIPRIZE_SCHEDULER_LISTEN=" + r.address("scheduler"))
	}, "TriprizePaymentsWaitForKey")
	servers.Eventually(t, "test mode is told again", func() bool { firing, _ := r.fires("TriprizePaymentsTestMode"); return firing })
}

// tool runs a command of triprize, which has to succeed.
func (r *rehearsal) tool(args ...string) string {
	r.T.Helper()
	stdout, stderr, status := run(r.T, append(operating(r.System), "TRIPRIZE_POSTGRES_URL="+r.Settings.Postgres.URL), args...)
	if status != 0 {
		r.T.Fatalf("triprize %v: %s%s", args, stdout, stderr)
	}
	return stdout
}

func (r *rehearsal) toolSays(command, list, text string) bool {
	return strings.Contains(r.tool(command, list), text)
}

// panels does a little of everything, and wants data in every panel of every dashboard.
func (r *rehearsal) panels() {
	files, err := filepath.Glob("../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		r.T.Fatal(files, err)
	}
	var expressions []string
	for _, file := range files {
		var dashboard struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal([]byte(document(r.T, file)), &dashboard); err != nil {
			r.T.Fatal(file, err)
		}
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				expressions = append(expressions, target.Expr)
			}
		}
	}
	r.everything()
	for _, expression := range expressions {
		shown := strings.ReplaceAll(expression, "$__rate_interval", "5m")
		servers.Eventually(r.T, "there is data for "+shown, func() bool { return len(r.values(shown)) > 0 })
	}
}

// everything does a little of everything that a panel shows.
func (r *rehearsal) everything() {
	closed := r.Campaign(3)
	fixture.SellOut(r.T, r.DB, closed)
	r.AwaitDrawn(closed)
	r.Buy(fleet.Order{Campaign: closed, User: "late"})
	open, held := r.Campaign(10), r.Campaign(5)
	wallet := r.Wallet("gina", 100000)
	for column := range 5 { // a counter that begins with its first event has no rate before its second sample
		r.MustHold(fleet.HoldOrder{Campaign: held, User: uuid.NewString(), At: []shape.Position{{Layer: 5, Column: column + 1}}, TTL: 1})
		r.Execute(wallet+"/credit", fleet.Fields{"amount": 1})
		order := fleet.Order{Campaign: open, User: "gina", Key: uuid.NewString(), ByWallet: true, Wait: true}
		r.Buy(order)
		r.Buy(order)
	}
	r.AwaitJob(0, r.Cancel(r.App, buyPaid(r.System, open, "hanna", "pm_card_visa"), uuid.NewString(), "").ID)
}
