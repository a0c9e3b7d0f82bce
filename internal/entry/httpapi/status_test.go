package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

type states = map[string]contract.CheckState

// awaitStatus waits until checks have these states, and the answer what else is wanted.
func awaitStatus(s *fleet.System, want states, also ...func(contract.Status) bool) (last contract.Status) {
	s.T.Helper()
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.T.Logf("the last status: %+v", last)
		}
	})
	servers.Eventually(s.T, fmt.Sprint("the status is ", want), func() bool {
		a := s.Do(0, s.Operator, http.MethodGet, "/v1/status", nil, nil)
		mustAnswer(s.T, "the status", a, http.StatusOK)
		last = decoded[contract.Status](s, a)
		got := states{"": last.State}
		for _, one := range last.Checks {
			got[one.Name] = one.State
		}
		for name, state := range want {
			if got[name] != state {
				return false
			}
		}
		return !slices.ContainsFunc(also, func(is func(contract.Status) bool) bool { return !is(last) })
	})
	return last
}

func TestTheStatusOfAFreshSystemIsInOrder(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Sandbox: &stripesim.Settings{}})
	status := awaitStatus(s, states{"": "ok", "postgres": "ok", "redis": "ok", "no_worker": "ok", "no_scheduler": "ok", "draw_key_wrong": "ok", "writes_failing": "ok", "sweeps": "ok",
		"audit": "ok", "jobs": "ok", "webhooks": "ok", "card_provider": "ok", "test_mode": "info", "standby": "info"}, func(st contract.Status) bool {
		return st.Figures.Leader != nil && st.Figures.Workers != nil && *st.Figures.Workers == 1 && len(st.Figures.Backlog) == 6 && len(st.ExecutionLocks) == 0
	})
	for _, one := range status.Checks {
		file, anchor, _ := strings.Cut(*one.Runbook, "#")
		wantAnswer(t, one.Name, s.Do(0, "", http.MethodGet, "/docs/runbooks/"+file, nil, nil), http.StatusOK, `<h2 id="`+anchor+`">`)
	}
	if at := slices.IndexFunc(status.Checks, func(c contract.StatusCheck) bool { return c.State == "ok" }); at < 2 {
		t.Errorf("what is in order comes before the notes: %+v", status.Checks)
	}
	sold := s.Buy(fleet.Order{Campaign: s.Campaign(3), User: "mina", Card: "pm_card_visa", Wait: true})
	mustAnswer(t, "a purchase", sold, job.Succeeded)
	refused := s.Buy(fleet.Order{Campaign: s.Campaign(2), User: "otto", Quantity: 3, ByWallet: true, Wait: true}) // without a wallet
	mustAnswer(t, "a refusal", refused, job.Failed)
	exec(s, `UPDATE jobs SET accepted_at = accepted_at - interval '1 hour' WHERE id = $1`, sold.ID) // the buyer took that long
	awaitStatus(s, nil, func(st contract.Status) bool {
		servers.Exec(t, s.DB, `UPDATE payments SET finished_at = clock_timestamp() WHERE purchase_id = $1`, sold.Result.PurchaseID) // the figures are those of ten seconds
		exec(s, `INSERT INTO refused_jobs (jobs) VALUES (ARRAY[$1::uuid])`, refused.ID)
		is := st.Figures
		return is.PurchasesPerSecond != nil && *is.PurchasesPerSecond > 0 && *is.RefusalsPerSecond > 0 && is.FinalP50Ms != nil && *is.FinalP50Ms <= *is.FinalP99Ms && *is.FinalP99Ms < 1_800_000
	})
	wantAnswer(t, "an app", s.Do(0, s.App, http.MethodGet, "/v1/status", nil, nil), http.StatusForbidden)
}

// Nobody works, so what is made here stays.
func TestTheStatusNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: takingCards})
	drawing, selling := s.Campaign(3), s.Campaign(6)
	fixture.SellOut(t, s.DB, drawing)
	exec(s, `UPDATE campaigns SET draw_started_at = draw_started_at - interval '20 minutes', execution_lock_id = gen_random_uuid(), execution_locked_by = 'host/1/gone',
		execution_locked_at = clock_timestamp() - interval '5 minutes' WHERE id = $1`, drawing)
	exec(s, `INSERT INTO draw_waits (campaign_id, reason, retry_at, faults) VALUES ($1, 'a test', clock_timestamp(), 2)`, drawing)
	_, end := waits(s, selling, payment.Creating, payment.WaitsForOperator)
	t.Cleanup(end)
	away, answered := waits(s, selling, payment.Creating, payment.WaitsForProvider)
	t.Cleanup(answered)
	exec(s, `UPDATE payments SET waiting_since = waiting_since - interval '4 minutes' WHERE purchase_id = $1`, away)
	insertRefund(s, fixture.Buy(t, s.DB, selling, "otto", 0, 1), "card", "failed")
	for _, sql := range []string{
		`INSERT INTO payment_discrepancies (id, kind, object_id, detail) VALUES (gen_random_uuid(), 'differs', 'pi_1', 'a test')`,
		`INSERT INTO audit_checks (invariant, checked_at) VALUES ('counters', clock_timestamp() - interval '2 hours')`,
		`INSERT INTO audit_violations (walk, id, invariant, subjects) VALUES ('campaigns', gen_random_uuid(), 'counters', '{a test}')`,
		`INSERT INTO webhook_endpoints (id, client, url, events, verified_at, failing_since, failures) VALUES (gen_random_uuid(), 'shop', 'https://shop.test', '{*}', clock_timestamp(), clock_timestamp() - interval '2 hours', 1)`,
		`INSERT INTO webhook_deliveries (event_id, endpoint_id, next_at) SELECT gen_random_uuid(), id, clock_timestamp() - interval '10 minutes' FROM webhook_endpoints`,
		`INSERT INTO webhook_endpoints (id, client, url, events, disabled_at, disabled_reason) VALUES (gen_random_uuid(), 'shop', 'https://shop.test', '{*}', clock_timestamp(), 'gone')`,
	} {
		exec(s, sql)
	}
	t.Cleanup(func() { // nothing else fits them
		exec(s, `TRUNCATE payment_discrepancies, audit_checks, audit_violations, webhook_deliveries, webhook_endpoints`)
		exec(s, `DELETE FROM draw_waits`)
	})
	silent := queue.NewHeartbeat(s.Redis, s.Settings.Redis.Namespace, queue.RoleWorker, "host/2/again", config.Worker{HeartbeatInterval: time.Hour, HeartbeatTTL: time.Hour}) // it beats once
	silent.Describe = func() queue.Description {
		return queue.Description{Version: "old", Faults: []string{"draw_key_wrong", "locks"}}
	}
	go silent.Run(t.Context(), servers.Logger(t))
	servers.NoError(t, s.Redis.HSet(t.Context(), s.Settings.Redis.Namespace+":sweeps", "missing-permissions", `{"started_at":"2126-01-01T00:00:00Z","counts":{"asked":2,"missing":2}}`,
		"lost-jobs", `{"started_at":"2026-01-01T00:00:00Z"}`, "audit", `{"started_at":"2126-01-01T00:00:00Z","error":"for a moment"}`, "audit:succeeded", `{"started_at":"2126-01-01T00:00:00Z"}`,
		"stuck-draws", `{"started_at":"2126-01-01T00:00:00Z","error":"from the start"}`).Err())
	exec(s, `UPDATE jobs SET accepted_at = accepted_at - interval '2 minutes' WHERE id = $1`, s.Buy(fleet.Order{Campaign: selling, User: "ada"}).ID)
	status := awaitStatus(s, states{"": "critical", "sales_stuck": "warning", "locks": "warning", "postgres": "ok", "redis": "ok", "no_worker": "critical", "no_scheduler": "critical", "jobs": "critical", "draws": "critical",
		"draws_waiting": "info", "draw_failing": "warning", "execution_locks": "warning", "payments": "warning", "refunds": "warning", "discrepancies": "warning", "audit": "critical", "audit_late": "warning",
		"webhooks": "warning", "webhooks_failing": "warning", "webhooks_disabled": "warning", "draw_key_wrong": "critical", "provider_key": "critical", "worker_crashes": "ok", "sweeps": "warning", "test_mode": "info", "card_provider": "warning"})
	for _, one := range status.Checks {
		if since := map[string]time.Duration{"no_worker": 1, "jobs": time.Minute, "draws": 15 * time.Minute, "webhooks": 9 * time.Minute}[one.Name]; since > 0 && (one.Since == nil || status.At.Sub(*one.Since) < since) {
			t.Errorf("%+v", one)
		}
		if one.Name == "sweeps" {
			wantEqual(t, "the sweeps", one.Detail, "The sweep stuck-draws, lost-jobs fails or does not run.")
		}
	}
	if locks := status.ExecutionLocks; len(locks) != 1 || locks[0].CampaignID != drawing || locks[0].Worker != "host/1/gone" || !locks[0].Stale || locks[0].Lock == uuid.Nil {
		t.Errorf("%+v", locks)
	}
	fixture.BuyByCard(t, s.DB, selling, "mina", 0, 1)
	awaitStatus(s, states{"card_provider": "ok"}) // it takes money
	operator := signIn(s)
	page := operator.get("/now")
	mustAnswer(t, "the page", page, http.StatusOK, "The state is critical.", "No worker is alive. Purchases are accepted and wait; after", "The draw key of worker host/2/again cannot decrypt", "Crowds are slower. Reported by worker host/2/again.", "<bdi>worker host/2/again</bdi></th><td class=\"warning\">starting</td><td>old</td>", "audit.md#triprizeauditviolation", "host/1/gone", `href="/console/sweeps/stale-locks"`, "curves.js")
	live := operator.live("/now")
	mustAnswer(t, "what moves", live, http.StatusOK, "The state is critical.", without("<html"))
	servers.Eventually(t, "a sample is taken", func() bool { return fleet.Contains(operator.get("/now/curves").Body, "[[1") })
	const sweep = "/sweeps/stale-locks"
	wantAnswer(t, "the form", operator.get(sweep), http.StatusOK, "Run the sweep stale-locks")
	wantAnswer(t, "without a reason", operator.post(sweep), http.StatusBadRequest, "is required")
	wantAnswer(t, "a sweep that there is not", operator.post("/sweeps/dust", "/reason", "a test"), http.StatusNotFound)
	wantEqual(t, "locks before", count(s, `SELECT count(*) FROM campaigns WHERE execution_lock_id IS NOT NULL`), 1)
	wantAnswer(t, "the sweep", operator.post(sweep, "/reason", "a test"), http.StatusSeeOther, valued{"Location", "/console/now?done=1"})
	wantEqual(t, "locks after", count(s, `SELECT count(*) FROM campaigns WHERE execution_lock_id IS NOT NULL`), 0)
}

func TestTheStatusComesWithoutRedisAndPostgres(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	awaitStatus(s, states{"": "ok"})
	operator := signIn(s)
	awaitPage(operator, "/now", "All is in order.")
	servers.NoError(t, s.Stack.Redis.Stop())
	awaitStatus(s, states{"": "critical", "redis": "critical", "no_worker": "unknown", "no_scheduler": "unknown", "sweeps": "unknown", "postgres": "ok", "jobs": "ok", "draws": "ok"}, func(st contract.Status) bool {
		return st.Figures.Workers == nil && st.Figures.Leader == nil && st.Figures.PurchasesPerSecond != nil
	})
	servers.NoError(t, s.Stack.Postgres.Stop()) // the key cannot be checked any more, the session goes on
	servers.Eventually(t, "the page says that both are away", func() bool {
		page := operator.get("/now")
		mustAnswer(t, "the page", page, http.StatusOK, "The state is critical.", "Redis does not respond to this api")
		return fleet.Contains(page.Body, "Postgres does not respond to")
	})
	servers.NoError(t, s.Stack.Postgres.RestartAfter(t.Context(), 0))
	servers.NoError(t, s.Stack.Redis.RestartAfter(t.Context(), 0))
	awaitStatus(s, states{"": "ok"})
}
