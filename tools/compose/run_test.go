//go:build compose

package compose

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy is where haproxy listens with the example of deploy/haproxy.
const proxy = "http://127.0.0.1:8000"

// call makes a request of the API; status 0: there was no answer.
func call(method, path, key, idempotency, body string) (status int, answer map[string]any) {
	request, err := http.NewRequest(method, proxy+path, strings.NewReader(body)) //nolint:noctx // the client has a timeout
	if err != nil {
		panic(err)
	}
	request.Header = http.Header{"Authorization": {"Bearer " + key}, "Idempotency-Key": {idempotency}, "Prefer": {"wait=10"}, "Content-Type": {"application/json"}}
	client := http.Client{Timeout: 40 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	_ = json.NewDecoder(response.Body).Decode(&answer) // not of an error of the proxy
	return response.StatusCode, answer
}

// until waits for what is due within two minutes.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// crowd buys a position after the other and repeats what was not accepted.
type crowd struct {
	mu       sync.Mutex
	accepted int
	failures map[int]int // by status, since the last look
}

func (c *crowd) buy(t *testing.T, campaign, app string, done <-chan struct{}) {
	for order := rand.Text(); ; {
		select {
		case <-done:
			return
		case <-time.After(100 * time.Millisecond):
		}
		status, answer := call("POST", "/v1/campaigns/"+campaign+"/purchases", app, order, `{"user_id": "u-`+order+`", "selection": {"quantity": 1}, "payment": {"method": "external"}}`)
		c.mu.Lock()
		if status == http.StatusOK || status == http.StatusAccepted || status == http.StatusCreated {
			c.accepted++
			order = rand.Text()
		} else if c.failures[status]++; status != 0 && status < 500 {
			t.Errorf("a purchase got %d: %v", status, answer)
		}
		c.mu.Unlock()
	}
}

// after waits for purchases that are accepted after a step, and returns what failed since the last call.
func (c *crowd) after(t *testing.T, step string) (failures map[int]int) {
	t.Helper()
	enough := 0
	until(t, "100 purchases after "+step, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if enough == 0 {
			enough = c.accepted + 100
		}
		if c.accepted < enough {
			return false
		}
		failures, c.failures = c.failures, make(map[int]int)
		return true
	})
	return failures
}

// A user's day with docker-compose.yml: start with the image of another commit, sell, scale, restart the servers,
// upgrade while people buy, audit. Nothing that was accepted is lost, and the upgrade refuses nobody.
func TestTheComposeFileSellsScalesRestartsAndUpgrades(t *testing.T) {
	folder, version := os.Getenv("TRY_FOLDER"), "old"
	site := filepath.Join(folder, "site")
	if err := os.Rename(filepath.Join(folder, "old"), site); err != nil {
		t.Fatal(err)
	}
	// sh runs commands in the site's folder as a user would type them, and returns what they print.
	sh := func(script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
		cmd.Dir = site
		cmd.Env = append(os.Environ(), "COMPOSE_PROJECT_NAME=triprize-try", "COMPOSE_PROGRESS=plain", "TRIPRIZE_VERSION="+version)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s\n%s", script, err, errs.String(), out)
		}
		return strings.TrimSpace(string(out))
	}
	defer sh("docker compose down --volumes --remove-orphans")
	// The relays of the beacon are out of reach. An older commit has no files for its secrets.
	sh(`sh ../new/deploy/secrets.sh
printf 'TRIPRIZE_BEACON_DEFAULT=false\nTRIPRIZE_BEACON_RELAYS=\n' >.env
[ -e deploy/secrets.sh ] || printf 'POSTGRES_PASSWORD=%s\nPOSTGRES_APP_PASSWORD=%s\nREDIS_PASSWORD=%s\nTRIPRIZE_DRAW_SECRET_KEY=%s\n' \
	"$(cat secrets/postgres_password)" "$(cat secrets/postgres_app_password)" "$(cat secrets/redis_password)" "$(cat secrets/draw_secret_key)" >>.env`)
	haproxy := exec.CommandContext(t.Context(), "haproxy", "-db", "-f", filepath.Join(folder, "new", "deploy", "haproxy", "compose.cfg"))
	if err := haproxy.Start(); err != nil {
		t.Fatal(err)
	}

	sh("docker compose up --build -d")
	until(t, "the old commit is ready", func() bool { status, _ := call("GET", "/readyz", "", "", ""); return status == http.StatusOK })
	key := func(role string) string {
		out := sh("docker compose run --rm --no-deps -T migrate key create --role " + role + " --client " + role + "-1")
		return regexp.MustCompile(`\S{24,}`).FindString(out)
	}
	operator, app := key("operator"), key("app")
	_, made := call("POST", "/v1/campaigns", operator, "raffle", `{"name": "Raffle", "currency": "JPY", "layers": [{"layer": 1, "positions": 10000, "price": 100}]}`)
	campaign := fmt.Sprint(made["id"])
	if status, answer := call("POST", "/v1/campaigns/"+campaign+"/publish", operator, "publish", ""); status != http.StatusOK {
		t.Fatalf("not published: %d %v, %v", status, answer, made)
	}

	buyers, done, shoppers := &crowd{failures: make(map[int]int)}, make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		shoppers.Go(func() { buyers.buy(t, campaign, app, done) })
	}
	stop := sync.OnceFunc(func() { close(done); shoppers.Wait() })
	defer stop()
	refusesNobody := func(step string) {
		t.Helper()
		if failures := buyers.after(t, step); len(failures) > 0 {
			t.Errorf("%s: answers that accepted no purchase, by status: %v", step, failures)
		}
	}
	refusesNobody("the start")
	sh("docker compose up -d --no-recreate --wait --scale worker=3 worker")
	refusesNobody("scaling the workers")
	for _, server := range []string{"postgres", "redis"} { // the api cannot accept without Postgres, and says so
		sh("docker compose restart " + server)
		t.Logf("restart of %s: repeated by status: %v", server, buyers.after(t, "a restart of "+server))
	}

	page := regexp.MustCompile("(?s)make compose takes this block as it is -->\n```sh\n(.*?)```").FindSubmatch(read(t, "docs", "operations.md"))
	if page == nil {
		t.Fatal("docs/operations.md has no block for an upgrade")
	}
	sh("cp -R .env secrets ../new/; mv ../site ../old; mv ../new ../site")
	version = "new"
	sh("docker compose build") // in advance, so that the time below is that of the upgrade
	began := time.Now()
	sh(string(page[1]))
	t.Logf("the upgrade took %.0f s", time.Since(began).Seconds())
	refusesNobody("the upgrade")
	sh("docker compose up -d --scale worker=3") // restarts all if the new file changes a server
	t.Logf("docker compose up: repeated by status: %v", buyers.after(t, "docker compose up"))
	images := strings.Fields(sh(`docker inspect --format '{{.Config.Image}}' $(docker compose ps -q api api2 worker scheduler)`))
	if !slices.Equal(images, slices.Repeat([]string{"triprize:new"}, 6)) {
		t.Errorf("these images run: %q", images)
	}
	stop()

	sql := func(query string) string {
		t.Helper()
		return sh("docker compose exec -T postgres psql -U triprize -d triprize -At <<'END'\n" + query + "\nEND")
	}
	until(t, "all jobs are finished", func() bool { return sql(`SELECT count(*) FROM jobs WHERE finished_at IS NULL`) == "0" })
	// Nothing is lost. The role of the fleet owns nothing and may create nothing, and no session of the fleet has another role.
	end := sql(`SELECT (SELECT count(*) FROM jobs WHERE kind = 'purchase' AND state = 'succeeded'), (SELECT count(*) FROM positions WHERE state = 'sold'),
  (SELECT count(*) FROM pg_shdepend WHERE refobjid = r.oid AND deptype = 'o'), rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls,
  (SELECT count(*) FROM pg_auth_members WHERE member = r.oid), has_database_privilege(oid, 'triprize', 'CREATE'),
  (SELECT count(*) FROM pg_namespace n WHERE has_schema_privilege(r.oid, n.oid, 'CREATE')),
  (SELECT string_agg(DISTINCT usename, ' ') FROM pg_stat_activity WHERE application_name LIKE 'triprize%')
FROM pg_roles r WHERE rolname = 'triprize_app'`)
	if want := fmt.Sprintf("%d|%[1]d|0|f|0|f|0|triprize_app", buyers.accepted); end != want {
		t.Errorf("purchases and positions; triprize_app owns objects, is privileged, is a member, may create in the database, in schemas; sessions: %s, want %s", end, want)
	}
	t.Logf("%d purchases accepted", buyers.accepted)
	sh("docker compose run --rm --no-deps -T migrate audit")
	// What anybody with a look at a container sees.
	shown := sh(`docker inspect $(docker compose ps -aq); for id in $(docker compose ps -q); do docker top $id; done; docker compose logs --no-color`)
	if !strings.Contains(shown, `"address":"127.0.0.1"`) {
		t.Error("no request has the address that the proxy gives")
	}
	secrets := strings.Fields(sh("cat secrets/*"))
	if slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(shown, secret) }) || len(secrets) == 0 {
		t.Errorf("one of %d secrets is shown by inspect, by a command line or by a log", len(secrets))
	}
}
