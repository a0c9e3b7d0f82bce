package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/devkit/devstack"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// copied is how many rows each of growing gets, and mostRead how many of one table a
// statement may look at then.
const copied, mostRead = 2000, 500

// growing are the tables that grow: which row is copied, one that nobody has to do anything
// about, and what is changed in the copies beside their UUIDs, with n for their number.
var growing = []struct{ table, where, changed string }{
	{"campaigns", "state = 'completed'", ""},
	{"layers", "true", ""},
	{"positions", "state = 'sold'", ""},
	{"holds", "state = 'released'", ""},
	{"held_times", "true", ""},
	{"jobs", "state = 'succeeded' AND kind = 'purchase'", "'idempotency_key', n"},
	{"refused_jobs", "true", "'id', n + 10000, 'refused_at', clock_timestamp() - interval '1 minute'"},
	{"outbox_messages", "jobs = '{}'", ""},
	{"purchases", "state = 'completed' AND payment_method = 'external'", ""},
	{"purchase_items", "true", ""},
	{"payments", "finished_at IS NOT NULL AND due_at IS NULL", "'intent_id', n, 'finished_at', clock_timestamp() - interval '1 minute'"},
	{"payment_steps", "true", "'number', n + 10000"},
	{"payment_events", "handled_at IS NOT NULL", "'id', n"},
	{"refunds", "state = 'succeeded' AND due_at IS NULL", "'provider_id', n"},
	{"payment_discrepancies", "closed_at IS NOT NULL", "'object_id', n"},
	{"wallets", "true", "'owner_id', n"},
	{"ledger_entries", "kind = 'credit'", "'reference', n"},
	{"wallet_events", "true", ""},
	{"wallet_snapshots", "true", ""},
	{"authorizations", "state = 'voided'", ""},
	{"webhook_events", "true", ""},
	{"webhook_deliveries", "true", "'state', 'delivered', 'next_at', null, 'finished_at', clock_timestamp()"},
	{"webhook_attempts", "true", "'number', n + 10000"},
}

// A database has grown, and the planner has no statistics of it, or those of when it was small.
// That sessions do not keep the plans of that time is a test of package postgres.
func TestNoStatementReadsATableThatHasGrown(t *testing.T) {
	t.Parallel()
	for name, analyze := range map[string]string{"never analysed": "SELECT", "analysed while small": "ANALYZE"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fleet.Start(t, fleet.Options{Private: true, Schedulers: -1, Sandbox: &stripesim.Settings{},
				Env: []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8"}})
			for _, sql := range []string{`ALTER SYSTEM SET autovacuum = off`, `SELECT pg_reload_conf()`} {
				servers.Exec(t, s.DB, sql)
			}
			listen(s)
			work := func() {
				doEverything(s)
				refundByCard(s)
				tell(s)
			}
			work()
			servers.Exec(t, s.DB, analyze)
			servers.Exec(t, s.DB, `UPDATE pg_class SET reltuples = 0 WHERE oid = 'outbox_messages'::regclass AND reltuples > 0`) // no job was queued
			large := s.Campaign(100)
			grow(s)
			s.StopAll("worker")
			explainPlans(s)
			servers.Exec(t, s.DB, `DELETE FROM audit_walks`) // no walk pauses
			work()
			buyAndHold(s, large)
			checkReads(t, postgresLog(s))
			shrink(s)
		})
	}
}

// explainPlans starts an api and a worker whose sessions write every plan to the log of
// Postgres. They plan a statement without its parameters, as sessions else do from the sixth
// time on, and keep that plan.
func explainPlans(s *fleet.System) {
	s.T.Helper()
	u, err := url.Parse(s.Settings.Postgres.URL)
	servers.NoError(s.T, err)
	query := u.Query()
	for name, value := range map[string]string{
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on", "auto_explain.log_timing": "off",
		"auto_explain.log_nested_statements": "on", "auto_explain.log_format": "json", "plan_cache_mode": "force_generic_plan",
	} {
		query.Set(name, value)
	}
	u.RawQuery = query.Encode()
	s.URLs = nil
	s.RunAPI("TRIPRIZE_POSTGRES_URL=" + u.String())
	s.RunWorker("TRIPRIZE_POSTGRES_URL=" + u.String())
}

// listen makes an endpoint for every event. Nobody answers there.
func listen(s *fleet.System) {
	s.T.Helper()
	address, err := devstack.FreeAddress()
	servers.NoError(s.T, err)
	a := s.Do(0, s.App, http.MethodPost, "/v1/webhook-endpoints", map[string]string{"Idempotency-Key": uuid.NewString()},
		fleet.Fields{"url": "http://" + address, "events": []string{"*"}})
	fleet.Want(s.T, http.StatusCreated, a)
}

// tell waits until a worker has tried to send an event.
func tell(s *fleet.System) {
	s.T.Helper()
	attempts := func() int { return servers.Value[int](s.T, s.DB, `SELECT count(*) FROM webhook_attempts`) }
	before := attempts()
	servers.Eventually(s.T, "an event is sent", func() bool {
		servers.Exec(s.T, s.DB, `UPDATE webhook_endpoints SET verified_at = clock_timestamp(), paused_until = NULL, disabled_at = NULL, due_at = clock_timestamp()`)
		servers.Exec(s.T, s.DB, `UPDATE webhook_deliveries SET next_at = clock_timestamp() WHERE state = 'pending'`)
		sweepDueItems(s)
		return attempts() > before
	})
}

// sweepDueItems does what a scheduler would do: this system has none.
func sweepDueItems(s *fleet.System) {
	s.T.Helper()
	s.Post("/v1/sweeps/due-items", nil)
}

// buyAndHold buys and holds in a campaign, and is refused.
func buyAndHold(s *fleet.System, campaign uuid.UUID) {
	s.T.Helper()
	if a := s.Buy(fleet.Order{Campaign: campaign, User: "mina", Wait: true}); a.Refusal() != "" || a.Err != nil {
		s.T.Fatalf("%v %s", a, a.Body)
	}
	if a := s.Buy(fleet.Order{Campaign: campaign, User: "mina", ByWallet: true, Wait: true}); a.Refusal() == "" {
		s.T.Fatalf("%v %s", a, a.Body)
	}
	s.Release(s.App, s.MustHold(fleet.HoldOrder{Campaign: campaign, User: "mina", Quantity: 1}).ID)
	a := s.Execute("/v1/campaigns/"+campaign.String()+"/holds", fleet.Fields{"user_id": "mina", "quantity": 3, "adjacent": true})
	s.Release(s.App, a.ID)
}

// grow copies one row of each growing table.
func grow(s *fleet.System) {
	s.T.Helper()
	asReplica(s, func(tx pgx.Tx) {
		servers.Exec(s.T, tx, `CREATE TABLE copies AS SELECT pg_current_xact_id()::xid AS made`)
		servers.Exec(s.T, tx, `INSERT INTO outbox_messages (id, kind, jobs, seen_at) VALUES (gen_random_uuid(), 'purchase', '{}', clock_timestamp() + interval '1 day')`)
		servers.Exec(s.T, tx, `INSERT INTO wallet_snapshots (wallet_id, version, balance, held) VALUES (gen_random_uuid(), 1, 1, 0)`)
		for _, g := range growing {
			changes := servers.Value[string](s.T, tx, `
				SELECT coalesce(string_agg(format('%L, CASE WHEN (one.r).%I IS NOT NULL THEN gen_random_uuid() END', attname, attname), ', '), '')
				FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND atttypid = 'uuid'::regtype`, g.table)
			if changes != "" && g.changed != "" {
				changes += ", "
			}
			columns := servers.Value[string](s.T, tx, `
				SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
				WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`, g.table)
			copies := fmt.Sprintf(`INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE
				SELECT %s FROM (SELECT (jsonb_populate_record(one.r, jsonb_build_object(%s))).* FROM (SELECT r FROM %s r WHERE %s LIMIT 1) one, generate_series(1, %d) AS n) copies`,
				g.table, columns, columns, changes+g.changed, g.table, g.where, copied)
			servers.Eventually(s.T, "a row of "+g.table+" to copy", func() bool { // an event may just have woken the only one
				tag, err := tx.Exec(s.T.Context(), copies)
				if err != nil {
					s.T.Fatalf("%s: %v", g.table, err)
				}
				if tag.RowsAffected() == 0 {
					sweepDueItems(s)
				}
				return tag.RowsAffected() == copied
			})
		}
	})
}

// shrink removes the copies: no system is sound with them.
func shrink(s *fleet.System) {
	s.T.Helper()
	asReplica(s, func(tx pgx.Tx) {
		for _, g := range growing {
			servers.Exec(s.T, tx, `DELETE FROM `+g.table+` WHERE xmin = (SELECT made FROM copies)`)
		}
	})
}

// asReplica runs a transaction without triggers.
func asReplica(s *fleet.System, do func(tx pgx.Tx)) {
	s.T.Helper()
	err := postgres.InTx(s.T.Context(), s.DB, func(tx pgx.Tx) error {
		servers.Exec(s.T, tx, `SET LOCAL session_replication_role = replica`)
		do(tx)
		return nil
	})
	servers.NoError(s.T, err)
}

func postgresLog(s *fleet.System) []byte {
	s.T.Helper()
	data, err := os.ReadFile(filepath.Join(s.Stack.Dir, "postgres.log"))
	servers.NoError(s.T, err)
	return data
}

// wholeCampaigns is how many positions of campaigns a look of the sweep audit is at.
const wholeCampaigns = 10_000

// readsWhole reports whether so many rows of a table may be read. An erasure looks for its rows in whole tables, and then changes those. The audit
// reads whole campaigns, and the outbox, which is as long as the backlog, for jobs that have been queued for more than a minute.
func readsWhole(sql, table string, rows int) bool {
	return strings.Contains(sql, "SELECT t.ctid::text") || rows < wholeCampaigns && (strings.HasPrefix(table, "positions") && strings.Contains(sql, "positions AS NOT MATERIALIZED") ||
		table == "outbox_messages" && strings.Contains(sql, "jobs AS NOT MATERIALIZED"))
}

// checkReads wants every growing table to be used, and none to be read by many rows.
func checkReads(t *testing.T, log []byte) {
	t.Helper()
	used, told := make(map[string]bool), make(map[string]bool)
	for _, entry := range bytes.Split(log, []byte("  plan:\n"))[1:] {
		var plan []byte
		for line := range bytes.Lines(entry) {
			if !bytes.HasPrefix(line, []byte("\t")) {
				break
			}
			plan = append(plan, line...)
		}
		var explained servers.Explained
		if err := json.Unmarshal(plan, &explained); err != nil {
			t.Fatalf("%v: %s", err, plan)
		}
		for table, rows := range explained.Read() {
			used[table] = true
			if rows > mostRead && !readsWhole(explained.Query, table, rows) && !told[explained.Query] {
				told[explained.Query] = true
				t.Errorf("%d rows of %s are read by %s\n%s", rows, table, strings.TrimSpace(explained.Query), plan)
			}
		}
	}
	for _, g := range growing {
		if !used[g.table] {
			t.Errorf("nothing has used %s", g.table)
		}
	}
}
