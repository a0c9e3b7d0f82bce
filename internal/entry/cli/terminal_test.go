package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// fakeAPI answers each path with a document; a path that it does not have is the code and the problem of its other answers.
func fakeAPI(t *testing.T, documents map[string]string) (asked func() string) {
	t.Helper()
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.RequestURI()+" by "+r.Header.Get("Triprize-Operator"))
		document, ok := documents[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			document = `{"status":404,"code":"not-found","detail":"there is none"}`
		}
		_, _ = io.WriteString(w, document)
	}))
	t.Cleanup(server.Close)
	t.Setenv("TRIPRIZE_API", server.URL)
	t.Setenv("TRIPRIZE_KEY", "tp_operator_secret")
	t.Setenv("TRIPRIZE_OPERATOR", "Zoë")
	return func() string { defer func() { requests = nil }(); return strings.Join(requests, "\n") }
}

const statusDocument = `{"state":"%s","at":"2026-11-27T10:00:00Z","checks":[{"name":"redis","state":"%[1]s","detail":"no\u001banswer","since":null,"runbook":"redis.md#triprizeredisaway"}],` +
	`"figures":{"purchases_per_second":12.5,"refusals_per_second":null,"final_p50_ms":null,"final_p99_ms":null,"workers":0,"schedulers":1,"leader":"host/7","backlog":[{"kind":"draw","count":3,"age_seconds":61.5}]},` +
	`"execution_locks":[]}`

// shows is says for what stands in columns.
func shows(t *testing.T, status int, line string, wanted ...string) (stdout string) {
	t.Helper()
	stdout = says(t, status, line)
	for _, want := range wanted {
		if text := strings.Join(strings.Fields(stdout), " "); !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", line, text, want)
		}
	}
	return stdout
}

// A monitor must tell what is wrong from what nobody has said.
func TestTheStatusTellsByItsStatus(t *testing.T) {
	documents := make(map[string]string)
	asked := fakeAPI(t, documents)
	for state, status := range map[string]int{"ok": 0, "unknown": 1, "warning": 1, "critical": 1} {
		documents["/v1/status"] = fmt.Sprintf(statusDocument, state)
		shows(t, status, "status", state+": 12.5 purchases/s, - refusals/s, final after - ms (p99); leader host/7", state+" redis no answer - redis.md#triprizeredisaway", "draw 3 62 s")
		var printed, sent any
		if json.Unmarshal([]byte(says(t, status, "status --json")), &printed) != nil || json.Unmarshal([]byte(documents["/v1/status"]), &sent) != nil || fmt.Sprint(printed) != fmt.Sprint(sent) {
			t.Errorf("as JSON it is %v, and was %v", printed, sent)
		}
	}
	if requests := asked(); !strings.Contains(requests, "GET /v1/status by Zo%C3%AB") {
		t.Error(requests)
	}
	delete(documents, "/v1/status")
	if text := says(t, 2, "status", "404 not-found"); text != "" {
		t.Errorf("an api that answers says: %s", text)
	}
	t.Setenv("TRIPRIZE_API", "http://127.0.0.1:1")
	says(t, 2, "status", "connection refused", "run: triprize doctor")
	t.Setenv("TRIPRIZE_KEY", "")
	says(t, 2, "status", "TRIPRIZE_API and TRIPRIZE_KEY are required")
	says(t, 2, "status --now", "unknown flag")
}

func TestADocumentIsShownAsAPersonReadsIt(t *testing.T) {
	id, job := uuid.NewString(), uuid.NewString()
	documents := map[string]string{
		"/v1/purchases/" + id: `{"id":"` + id + `","job_id":"` + job + `","state":"awaiting_action","amount":1250,"currency":"EUR","failure":null,"cancellation":null,
			"payment":{"method":"card","reference":"pi_7","expires_at":null,"decline":null},"positions":[{"label":"Row C 5","number":7,"layer":2,"column":5,"price":1250}],"refunds":[],
			"timeline":[{"at":"2026-11-27T10:00:00Z","event":"declined","detail":"insufficient\u001b[31m funds"}]}`,
		"/v1/jobs/" + job:               `{"id":"` + job + `","state":"awaiting_action","attempts":2,"next_action":{"type":"redirect","url":"https://bank.example/7","expires_at":null}}`,
		"/v1/campaigns/" + id:           `{"id":"` + id + `","state":"completed","currency":"JPY","draw_started_at":"2026-11-27T10:00:00Z","positions":{"sold":3,"available":7},"layers":[{"layer":1,"label":null,"price":100,"positions":{"sold":3}}]}`,
		"/v1/campaigns/" + id + "/draw": `{"round":null,"winners":[{"prize":1,"name":"A car","label":"7","purchase_id":"` + id + `","user_id":"mina"}]}`,
		"/v1/users/mina/purchases":      `{"purchases":[],"next_cursor":"more"}`,
		"/v1/users/mina/holds":          `{"holds":[],"next_cursor":null}`,
		"/v1/wallets":                   `{"wallets":[{"id":"` + id + `","client":"shop","currency":"USD","balance":9007199254740993,"held":0,"available":5}],"next_cursor":null}`,
		"/v1/failures":                  `{"since":"2026-11-27T10:00:00Z","until":"2026-11-27T11:00:00Z","complete":true,"causes":[{"code":"internal-error","kind":"draw","count":4,"last_at":"2026-11-27T10:59:00Z","jobs":["` + id + `"]}]}`,
	}
	asked := fakeAPI(t, documents)
	text := shows(t, 0, "purchase "+id, "amount: 1250 # 12.50 EUR", `label: Row C 5 number: 7 layer: 2 column: 5 price: 1250 # 12.50 EUR`, "refunds: []", "event: declined", "--- id: "+job, "url: https://bank.example/7")
	if strings.Contains(text, "cancellation") || strings.Contains(text, "null") || strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
	shows(t, 0, "campaign "+id, "positions: sold: 3 available: 7 layers:", "layer: 1 price: 100 # 100 JPY positions: sold: 3", "prize: 1 name: A car label: \"7\"")
	shows(t, 0, "user mina", "purchases: []", "holds: []", "balance: 9007199254740993 # 90071992547409.93 USD held: 0 # 0.00 USD")
	if got := says(t, 0, "user mina --json"); got != documents["/v1/users/mina/purchases"]+"\n"+documents["/v1/users/mina/holds"]+"\n"+documents["/v1/wallets"]+"\n" {
		t.Error(got)
	}
	delete(documents, "/v1/jobs/"+job) // it is pruned
	says(t, 0, "purchase "+id, "timeline:")
	says(t, 1, "job "+job, "404 not-found")
	says(t, 1, "job me", `"me" is not the id of a job`)
	asked()
	shows(t, 0, "failed", "code: internal-error kind: draw count: 4", "- "+id)
	says(t, 0, "failed --since 2026-11-27T10:00:00Z --until 2026-11-27")
	want := "GET /v1/failures by Zo%C3%AB\nGET /v1/failures?since=2026-11-27T10%3A00%3A00Z&until=2026-11-27T00%3A00%3A00Z by Zo%C3%AB"
	if got := asked(); got != want {
		t.Errorf("asked for %s", got)
	}
	says(t, 0, "failed --since 24h")
	_, began, _ := strings.Cut(asked(), "since=")
	if at, err := time.Parse("2006-01-02T15", began[:13]); err != nil || time.Since(at) < 24*time.Hour || time.Since(at) > 48*time.Hour {
		t.Errorf("a day ago is %s, %v", at, err)
	}
	says(t, 1, "failed --since yesterday", "neither a date")
}

// diagnosis runs doctor, and returns its findings by state and check. The servers of tests do not sync, and have the
// connections of other tests: that is left out.
func diagnosis(t *testing.T, exit int) map[string]string {
	t.Helper()
	stdout, stderr, status := run("doctor", "--json")
	var report struct {
		OK     bool
		Checks []finding
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || status != exit && (status != 1 || exit != 0) || report.OK != (status == 0) {
		t.Fatalf("%v: status %d, %s%s", err, status, stdout, stderr)
	}
	found := make(map[string]string)
	for _, f := range report.Checks {
		if (f.Do == "") != (f.State == "ok") {
			t.Errorf("what is to be done? %+v", f)
		}
		if f.Check == "durability of postgres" && strings.Contains(f.Detail, "off") || f.Check == "connections" {
			f.State = "ok"
		}
		found[f.State+" "+f.Check] += f.Detail
	}
	for _, secret := range []string{strings.Repeat("5a", 32), "47114711", "hunter2"} {
		if strings.Contains(stdout+stderr, secret) {
			t.Errorf("it prints what it must not: %s", stdout)
		}
	}
	return found
}

// wrongs lists what is wrong.
func wrongs(found map[string]string) string {
	return strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(found)), func(name string) bool {
		return !strings.HasPrefix(name, "warning") && !strings.HasPrefix(name, "critical")
	}), ", ")
}

func TestTheDoctorFindsWhatIsWrongAndGoesOn(t *testing.T) {
	db, settings := database(t), servers.RedisSettings(t)
	t.Setenv("TRIPRIZE_REDIS_URL", settings.Redis.URL)
	t.Setenv("TRIPRIZE_REDIS_TIMEOUT", "10m")
	t.Setenv("TRIPRIZE_REDIS_NAMESPACE", settings.Redis.Namespace)
	t.Setenv("TRIPRIZE_DRAW_SECRET_KEY", strings.Repeat("5a", 32))
	first, second := fixture.Campaign(t, db, fixture.Draft(3)), fixture.Campaign(t, db, fixture.Draft(3))
	found := diagnosis(t, 0)
	newest, err := schema.Newest()
	servers.NoError(t, err)
	for name, want := range map[string]string{"ok settings": "valid", "ok postgres": "version 1", "ok role of postgres": "a primary", "ok encoding of the database": "UTF8", "ok collation": "version", "ok triggers": "origin", "ok clock of postgres": "s ahead", "info standbys": "0 standbys", "info processes": "none", "ok writes to postgres": "written", "ok connections": "triprize-cli",
		"ok schema": fmt.Sprint("version ", newest), "ok locks": "none", "ok draw key": "of 2 unfinished", "ok redis": "deleted", "ok channels of redis": "published", "ok clock of redis": "s ahead", "ok durability of redis": "noeviction true"} {
		if text, ok := found[name]; !ok || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q; found %q", name, text, want, found)
		}
	}
	if keys := servers.Keys(t, servers.Redis(t, settings), settings.Redis.Namespace+"*"); wrongs(found) != "" || len(keys) != 0 {
		t.Errorf("wrong are %q; the keys %q are left", wrongs(found), keys)
	}

	rdb := servers.Redis(t, settings)
	for _, role := range []string{queue.RoleWorker, queue.RoleScheduler} { // and the only api is frozen
		beat := queue.NewHeartbeat(rdb, settings.Redis.Namespace, role, "host/1/"+role, config.Worker{HeartbeatInterval: 50 * time.Millisecond, HeartbeatTTL: time.Hour})
		go beat.Run(t.Context(), servers.Logger(t))
	}
	servers.Eventually(t, "both are alive", func() bool {
		found, err := queue.ReadFleet(t.Context(), rdb, settings.Redis.Namespace)
		return err == nil && len(found.Processes) == 2 && found.Processes[0].State == queue.Alive && found.Processes[1].State == queue.Alive
	})
	if found := diagnosis(t, 1); wrongs(found) != "critical processes" || !strings.Contains(found["critical processes"], "no api is alive") {
		t.Errorf("without an api: %q", found)
	}
	t.Setenv("TRIPRIZE_REDIS_NAMESPACE", settings.Redis.Namespace+"-none")
	servers.Exec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	if found := diagnosis(t, 1); wrongs(found) != "critical writes to postgres" {
		t.Errorf("a Postgres that does not write: %q", found)
	}
	servers.Exec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET default_transaction_read_only', current_database()); END $$`)

	servers.Exec(t, db, `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, newest+1)
	if found := diagnosis(t, 0); found["info schema"] == "" {
		t.Errorf("a newer schema: %q", found)
	}
	servers.Exec(t, db, `DELETE FROM goose_db_version WHERE version_id >= $1`, newest)
	if found := diagnosis(t, 1); wrongs(found) != "critical schema" {
		t.Errorf("an older schema: %q", found)
	}
	servers.Exec(t, db, `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, newest)

	t.Setenv("TRIPRIZE_DRAW_SECRET_KEY", keyring.NewKey())
	servers.Exec(t, db, `UPDATE campaigns SET state = 'cancelled', cancelled_at = now(), cancelled_by = 'a test', cancel_reason = 'it ends' WHERE id = $1`, first)
	if found := diagnosis(t, 1); wrongs(found) != "critical draw key" || !strings.Contains(found["critical draw key"], second.String()) || strings.Contains(found["critical draw key"], first.String()) {
		t.Errorf("another key: %q", found)
	}
	t.Setenv("TRIPRIZE_DRAW_SECRET_KEY", "")
	if found := diagnosis(t, 0); found["info draw key"] == "" || wrongs(found) != "" {
		t.Errorf("no key: %q", found)
	}

	full := servers.OwnRedis(t)
	t.Setenv("TRIPRIZE_REDIS_URL", full.URL())
	settings.Redis.URL = full.URL()
	admin := servers.Redis(t, settings)
	servers.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "resetchannels", "-info", "-time").Err())
	if found := diagnosis(t, 1); wrongs(found) != "critical channels of redis" || found["unknown durability of redis"] == "" || found["unknown clock of redis"] == "" {
		t.Errorf("a user without channels, INFO and TIME: %q", found)
	}
	servers.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "allchannels", "+@all").Err())
	servers.NoError(t, servers.Redis(t, settings).ConfigSet(t.Context(), "maxmemory", "1").Err())
	if found := diagnosis(t, 1); wrongs(found) != "critical redis" || !strings.Contains(found["critical redis"], "OOM") {
		t.Errorf("a full Redis: %q", found)
	}
	t.Setenv("TRIPRIZE_REDIS_URL", "redis://127.0.0.1:1")
	t.Setenv("TRIPRIZE_POSTGRES_URL", "postgres://somebody:hunter2@127.0.0.1:1/triprize")
	if found := diagnosis(t, 1); wrongs(found) != "critical postgres, critical redis" || len(found) != 3 {
		t.Errorf("without servers: %q", found)
	}
	says(t, 2, "doctor --config /nowhere", "/nowhere")
	t.Setenv("TRIPRIZE_POSTGRES_URL", "nonsense")
	says(t, 2, "doctor", "postgres.url")
}

func TestTheDoctorNamesWhoBlocksWhomWithoutLiterals(t *testing.T) {
	db := database(t)
	redis := servers.RedisSettings(t).Redis
	t.Setenv("TRIPRIZE_REDIS_URL", redis.URL)
	t.Setenv("TRIPRIZE_REDIS_TIMEOUT", "10m")
	id := fixture.Campaign(t, db, fixture.Draft(3))
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	pid := servers.Value[int](t, tx, `SELECT pg_backend_pid()`)
	servers.Exec(t, tx, `SELECT id, 47114711 AS n, 'it''s hunter2' FROM campaigns FOR UPDATE`)
	changed := make(chan error, 1)
	go func() {
		_, err := db.Exec(t.Context(), `UPDATE campaigns SET name = 'another' WHERE id = $1`, id)
		changed <- err
	}()
	servers.AwaitBlocked(t, db, 1)
	found := diagnosis(t, 0)
	if text := found["info locks"] + found["critical locks"]; !strings.Contains(text, fmt.Sprintf("pid %d (triprize-test) blocks 1 sessions", pid)) || !strings.Contains(text, "SELECT id, … AS n, …") {
		t.Errorf("%q", found)
	}
	servers.NoError(t, tx.Rollback(t.Context()))
	servers.NoError(t, <-changed)
}

func TestProgressIsALineThatIsOverwrittenAndRemoved(t *testing.T) {
	t.Parallel()
	ticks, out := make(chan time.Time), new(strings.Builder)
	end := countSeconds(out, "audit", ticks)
	ticks <- time.Time{} // what takes a second shows nothing
	ticks <- time.Time{}
	end()
	if want := "\r\x1b[Kaudit: 2 s\r\x1b[K"; out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "no terminal"))
	servers.NoError(t, err)
	c := withProgress(&cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }})
	c.SetArgs(nil)
	c.SetErr(file)
	servers.NoError(t, c.Execute())
	if text, err := os.ReadFile(file.Name()); err != nil || len(text) != 0 || file.Close() != nil {
		t.Errorf("a file gets %q, %v", text, err)
	}
}
