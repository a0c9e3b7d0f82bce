//go:build compose

package compose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// installation is the compose project, of one commit after the other in the same folder.
type installation struct {
	t               *testing.T
	folder, version string
}

// sh runs commands in the folder as a user would type them, and returns what they print.
func (i *installation) sh(script string) string {
	i.t.Helper()
	cmd := exec.CommandContext(i.t.Context(), "sh", "-euc", script)
	cmd.Dir = i.folder
	cmd.Env = append(os.Environ(), "COMPOSE_PROJECT_NAME=triprize-try", "COMPOSE_PROGRESS=plain", "TRIPRIZE_VERSION="+i.version)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		i.t.Fatalf("%s: %v\n%s\n%s", script, err, errs.String(), out.String())
	}
	return strings.TrimSpace(out.String())
}

// call makes a request of the API; status 0: there was no answer.
func call(method, path, key, idempotency, body string) (status int, answer map[string]any) {
	request, err := http.NewRequest(method, proxy+path, strings.NewReader(body)) //nolint:noctx // the client has a timeout
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + key, "Idempotency-Key": idempotency, "Prefer": "wait=10", "Content-Type": "application/json"} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	client := http.Client{Timeout: 40 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	_ = json.Unmarshal(content, &answer) // not of an error of the proxy
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
	jobs     []string
	failures map[string]int // by cause, since the last look
}

func (c *crowd) buy(t *testing.T, campaign, app string, done <-chan struct{}) {
	for n := 0; ; n++ {
		key := fmt.Sprintf("order-%p-%d", &n, n)
		for accepted := false; !accepted; {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			status, answer := call("POST", "/v1/campaigns/"+campaign+"/purchases", app, key, `{"user_id": "u-`+key+`", "selection": {"quantity": 1}, "payment": {"method": "external"}}`)
			accepted = status == http.StatusOK || status == http.StatusAccepted || status == http.StatusCreated
			c.mu.Lock()
			if accepted {
				c.jobs = append(c.jobs, answer["id"].(string))
			} else if c.failures[fmt.Sprint(status)]++; status != 0 && status < 500 {
				t.Errorf("a purchase got %d: %v", status, answer)
			}
			c.mu.Unlock()
		}
	}
}

// more waits for purchases that are accepted from now on.
func (c *crowd) more(t *testing.T, after string) {
	t.Helper()
	accepted := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.jobs)
	}
	before := accepted()
	until(t, "100 purchases after "+after, func() bool { return accepted() >= before+100 })
}

// failed returns the failures since the last call.
func (c *crowd) failed() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	failures := c.failures
	c.failures = make(map[string]int)
	return failures
}

// A user's day with docker-compose.yml: start with the image of another commit, sell, scale, restart the servers,
// upgrade while people buy, audit. Nothing that was accepted is lost, and the upgrade refuses nobody.
func TestTheComposeFileSellsScalesRestartsAndUpgrades(t *testing.T) {
	folder := os.Getenv("TRY_FOLDER")
	site := &installation{t, filepath.Join(folder, "site"), "old"}
	if err := os.Rename(filepath.Join(folder, "old"), site.folder); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		down := exec.Command("docker", "compose", "--project-directory", site.folder, "--project-name", "triprize-try", "down", "--volumes", "--remove-orphans") //nolint:noctx // the test's context has ended
		if out, err := down.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	// The relays of the beacon are out of reach.
	site.sh("sh ../new/deploy/secrets.sh; printf 'TRIPRIZE_BEACON_DEFAULT=false\nTRIPRIZE_BEACON_RELAYS=\n' >.env")
	if _, err := os.Stat(filepath.Join(site.folder, "deploy", "secrets.sh")); err != nil { // older than the files
		site.sh(`printf 'POSTGRES_PASSWORD=%s\nPOSTGRES_APP_PASSWORD=%s\nREDIS_PASSWORD=%s\nTRIPRIZE_DRAW_SECRET_KEY=%s\n' "$(cat secrets/postgres_password)" "$(cat secrets/postgres_app_password)" "$(cat secrets/redis_password)" "$(cat secrets/draw_secret_key)" >>.env`)
	}
	config := filepath.Join(folder, "new", "deploy", "haproxy", "compose.cfg")
	haproxy := exec.CommandContext(t.Context(), "haproxy", "-db", "-f", config)
	if err := haproxy.Start(); err != nil {
		t.Fatal(err)
	}

	site.sh("docker compose up --build -d")
	until(t, "the old commit is ready", func() bool { status, _ := call("GET", "/readyz", "", "", ""); return status == http.StatusOK })
	key := func(role string) string {
		out := site.sh("docker compose run --rm --no-deps -T migrate key create --role " + role + " --client " + role + "-1")
		return regexp.MustCompile(`\S{24,}`).FindString(out)
	}
	operator, app := key("operator"), key("app")
	status, made := call("POST", "/v1/campaigns", operator, "raffle", `{"name": "Raffle", "currency": "JPY", "layers": [{"layer": 1, "positions": 10000, "price": 100}]}`)
	campaign, _ := made["id"].(string)
	if result, isJob := made["result"].(map[string]any); isJob {
		campaign, _ = result["id"].(string)
	}
	if campaign == "" {
		t.Fatalf("no campaign: %d %v", status, made)
	}
	if status, answer := call("POST", "/v1/campaigns/"+campaign+"/publish", operator, "publish", ""); status != http.StatusOK {
		t.Fatalf("not published: %d %v", status, answer)
	}

	buyers, done, shoppers := &crowd{failures: make(map[string]int)}, make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		shoppers.Go(func() { buyers.buy(t, campaign, app, done) })
	}
	stop := sync.OnceFunc(func() { close(done); shoppers.Wait() })
	defer stop()
	refuses := func(step string) {
		t.Helper()
		buyers.more(t, step)
		if failures := buyers.failed(); len(failures) > 0 {
			t.Errorf("%s: answers that accepted no purchase, by status: %v", step, failures)
		}
	}
	refuses("the start")
	site.sh("docker compose up -d --no-recreate --wait --scale worker=3 worker")
	refuses("scaling the workers")
	for _, server := range []string{"postgres", "redis"} { // the api cannot accept without Postgres, and says so
		site.sh("docker compose restart " + server)
		buyers.more(t, "a restart of "+server)
		t.Logf("restart of %s: repeated by status: %v", server, buyers.failed())
	}

	page := regexp.MustCompile("(?s)make compose takes this block as it is -->\n```sh\n(.*?)```").FindSubmatch(read(t, "docs", "operations.md"))
	if page == nil {
		t.Fatal("docs/operations.md has no block for an upgrade")
	}
	site.sh("cp -R .env secrets ../new/; mv ../site ../old; mv ../new ../site")
	site.version = "new"
	site.sh("docker compose build") // in advance, so that the time below is that of the upgrade
	began := time.Now()
	site.sh(string(page[1]))
	t.Logf("the upgrade took %.0f s", time.Since(began).Seconds())
	refuses("the upgrade")
	site.sh("docker compose up -d --scale worker=3") // restarts all if the new file changes a server
	buyers.more(t, "docker compose up")
	t.Logf("docker compose up: repeated by status: %v", buyers.failed())
	images := strings.Fields(site.sh(`docker inspect --format '{{.Config.Image}}' $(docker compose ps -q api api2 worker scheduler)`))
	if slices.Sort(images); !slices.Equal(images, slices.Repeat([]string{"triprize:new"}, 6)) {
		t.Errorf("these images run: %q", images)
	}
	stop()

	sold := make(map[string]bool)
	for _, job := range buyers.jobs {
		var answer map[string]any
		until(t, "the end of job "+job, func() bool {
			_, answer = call("GET", "/v1/jobs/"+job, app, "", "")
			return answer["finished_at"] != nil
		})
		if answer["state"] != "succeeded" {
			t.Errorf("an accepted purchase is lost: %v", answer)
			continue
		}
		for _, position := range answer["result"].(map[string]any)["positions"].([]any) {
			sold[fmt.Sprint(position.(map[string]any)["number"])] = true
		}
	}
	_, board := call("GET", "/v1/campaigns/"+campaign, operator, "", "")
	if counts, _ := board["positions"].(map[string]any); fmt.Sprint(counts["sold"]) != fmt.Sprint(len(sold)) || len(sold) != len(buyers.jobs) {
		t.Errorf("%d purchases were accepted, of %d positions, and %v are sold", len(buyers.jobs), len(sold), counts)
	}
	t.Logf("%d purchases accepted, 0 lost", len(buyers.jobs))
	site.sh("docker compose run --rm --no-deps -T migrate audit")

	// The role of the fleet owns nothing and may create nothing, and no session of the fleet has another role.
	rights := site.sh(`docker compose exec -T postgres psql -U triprize -d triprize -At <<'END'
SELECT (SELECT count(*) FROM pg_shdepend WHERE refobjid = r.oid AND deptype = 'o'), rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls,
  (SELECT count(*) FROM pg_auth_members WHERE member = r.oid), has_database_privilege(oid, 'triprize', 'CREATE'),
  (SELECT count(*) FROM pg_namespace n WHERE has_schema_privilege(r.oid, n.oid, 'CREATE')),
  (SELECT string_agg(DISTINCT usename, ' ') FROM pg_stat_activity WHERE application_name LIKE 'triprize%')
FROM pg_roles r WHERE rolname = 'triprize_app';
END`)
	if rights != "0|f|0|f|0|triprize_app" {
		t.Errorf("triprize_app owns objects, is privileged, is a member, may create in the database, in schemas; sessions: %s", rights)
	}
	// What anybody with a look at a container sees.
	shown := site.sh(`docker inspect $(docker compose ps -aq); for id in $(docker compose ps -q); do docker top $id; done; docker compose logs --no-color`)
	if !strings.Contains(shown, `"address":"127.0.0.1"`) {
		t.Error("no request has the address that the proxy gives")
	}
	secrets := make(map[string]string)
	for name := range project(t).Secrets {
		content, err := os.ReadFile(filepath.Join(site.folder, "secrets", name))
		if secrets[name] = strings.TrimSpace(string(content)); err != nil || secrets[name] != "" && strings.Contains(shown, secrets[name]) {
			t.Errorf("%s is shown by inspect, by a command line or by a log (%v)", name, err)
		}
	}
	if len(secrets) == 0 {
		t.Error("no secret was looked for")
	}
}
