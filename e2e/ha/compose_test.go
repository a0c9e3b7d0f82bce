//go:build compose

package ha

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// A user's day with docker-compose.yml: start with the image of another commit, sell, scale, restart the servers,
// upgrade while people buy, audit. Nothing that was accepted is lost, and the upgrade refuses nobody.
func TestTheComposeFileSellsScalesRestartsAndUpgrades(t *testing.T) {
	folder, version := os.Getenv("TRY_FOLDER"), "old"
	site := filepath.Join(folder, "site")
	servers.NoError(t, os.Rename(filepath.Join(folder, "old"), site))
	// sh runs commands in the site's folder as a user would type them, and returns what they print.
	sh := func(script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
		cmd.Dir, cmd.Stderr = site, t.Output()
		cmd.Env = append(os.Environ(), "COMPOSE_PROJECT_NAME=triprize-try", "COMPOSE_PROGRESS=plain", "TRIPRIZE_VERSION="+version)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	defer sh("docker compose down --volumes --remove-orphans")
	sh(`sh ../new/deploy/secrets.sh
		printf 'TRIPRIZE_BEACON_DEFAULT=false\nTRIPRIZE_BEACON_RELAYS=\n' >.env # the relays are out of reach`)
	haproxy := exec.CommandContext(t.Context(), "haproxy", "-db", "-f", filepath.Join(folder, "new", "deploy", "haproxy", "compose.cfg"))
	servers.NoError(t, haproxy.Start())

	sh("docker compose up --build -d")
	key := func(role string) string {
		out := sh("docker compose run --rm --no-deps -T migrate key create --role " + role + " --client " + role + "-1")
		return regexp.MustCompile(`\S{24,}`).FindString(out)
	}
	api := &fleet.System{T: t, URLs: []string{"http://127.0.0.1:8000"}, Operator: key("operator"), App: key("app")}
	servers.Eventually(t, "the old commit is ready", func() bool {
		return api.Do(0, "", http.MethodGet, "/readyz", nil, nil).Status == http.StatusOK
	})
	made := fleet.Want(t, http.StatusCreated, api.Post("/v1/campaigns",
		fleet.RawJSON(`{"name": "Raffle", "currency": "JPY", "layers": [{"layer": 1, "positions": 10000, "price": 100}]}`)))
	fleet.Want(t, http.StatusOK, api.Post("/v1/campaigns/"+made.ID.String()+"/publish", nil))

	s := &sale{System: api, campaign: made.ID, wait: true}
	s.open(4)
	// goesOn waits for purchases that are accepted after a step, and returns what failed since the last call.
	goesOn := func(step string) (failed []int) {
		t.Helper()
		goal := s.accepted() + 100
		servers.Eventually(t, "100 purchases after "+step, func() bool { return s.accepted() >= goal })
		s.mu.Lock()
		defer s.mu.Unlock()
		failed, s.failed = s.failed, nil
		return failed
	}
	refusesNobody := func(step string) {
		t.Helper()
		if failed := goesOn(step); len(failed) > 0 {
			t.Errorf("%s: answers that accepted no purchase, by status: %v", step, failed)
		}
	}
	refusesNobody("the start")
	sh("docker compose up -d --no-recreate --wait --scale worker=3 worker")
	refusesNobody("scaling the workers")
	for _, server := range []string{"postgres", "redis"} { // the api cannot accept without Postgres, and says so
		sh("docker compose restart " + server)
		goesOn("a restart of " + server)
	}

	page, err := os.ReadFile("../../docs/operations.md")
	servers.NoError(t, err)
	upgrade := regexp.MustCompile("(?s)make compose takes this block as it is -->\n```sh\n(.*?)```").FindSubmatch(page)
	if upgrade == nil {
		t.Fatal("docs/operations.md has no block for an upgrade")
	}
	sh("cp -R .env secrets ../new/; mv ../site ../old; mv ../new ../site")
	version = "new"
	sh(string(upgrade[1]))
	refusesNobody("the upgrade")
	sh("docker compose up -d --scale worker=3") // restarts all if the new file changes a server
	goesOn("docker compose up")
	images := strings.Fields(sh(`docker inspect --format '{{.Config.Image}}' $(docker compose ps -q api api2 worker scheduler)`))
	if !slices.Equal(images, slices.Repeat([]string{"triprize:new"}, 6)) {
		t.Errorf("these images run: %q", images)
	}
	s.close()

	sql := func(query string) string {
		t.Helper()
		return sh("docker compose exec -T postgres psql -U triprize -d triprize -At <<'END'\n" + query + "\nEND")
	}
	servers.Eventually(t, "all jobs are finished", func() bool { return sql(`SELECT count(*) FROM jobs WHERE finished_at IS NULL`) == "0" })
	// Nothing is lost. The role of the fleet owns nothing and may create nothing, and no session of the fleet has another role.
	end := sql(`SELECT (SELECT count(*) FROM jobs WHERE kind = 'purchase' AND state = 'succeeded'), (SELECT count(*) FROM positions WHERE state = 'sold'),
  (SELECT count(*) FROM pg_shdepend WHERE refobjid = r.oid AND deptype = 'o'), rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls,
  (SELECT count(*) FROM pg_auth_members WHERE member = r.oid), has_database_privilege(oid, 'triprize', 'CREATE'),
  (SELECT count(*) FROM pg_namespace n WHERE has_schema_privilege(r.oid, n.oid, 'CREATE')),
  (SELECT string_agg(DISTINCT usename, ' ') FROM pg_stat_activity WHERE application_name LIKE 'triprize%')
FROM pg_roles r WHERE rolname = 'triprize_app'`)
	if want := fmt.Sprintf("%d|%[1]d|0|f|0|f|0|triprize_app", s.accepted()); end != want {
		t.Errorf("purchases, positions; triprize_app owns, is privileged, is a member, may create in the database, in schemas; sessions: %s, want %s", end, want)
	}
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
