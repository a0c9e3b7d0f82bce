package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// An operator with a terminal sees what runs, what was bought and what was done, and needs no SQL.
func TestTheTerminalSeesARunningFleet(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true})
	id := s.Campaign(3)
	s.Wallet("mina", 10_000)
	bought := fleet.Want(t, http.StatusOK, s.Buy(fleet.Order{Campaign: id, User: "mina", Layer: 2, ByWallet: true, Wait: true}))
	refused := fleet.Want(t, http.StatusOK, s.Buy(fleet.Order{Campaign: id, User: "otto", Layer: 1, ByWallet: true, Wait: true}))
	fleet.Want(t, http.StatusOK, s.Post("/v1/campaigns/"+id.String()+"/pause", nil))
	purchase, env := bought.Result.PurchaseID.String(), append(operating(s), "TRIPRIZE_OPERATOR=Zoë")
	servers.Eventually(t, "all is well", func() bool { // processes find each other
		_, _, status := run(t, env, "status")
		return status == 0
	})
	for line, wants := range map[string][]string{
		"status":                     {"well: ", "no_worker", "purchase 0"},
		"job " + refused.ID.String(): {"state: failed", "code: ", "user_id: otto"},
		"job " + bought.ID.String():  {"timeline: ", "event: completed"},
		"purchase " + purchase:       {"state: completed", "# 200 JPY", "method: wallet", "timeline: ", "event: completed"},
		"campaign " + id.String():    {"paused: true", "sold: 1"},
		"user mina":                  {purchase, "# 9800 JPY"},
		"failed":                     {"causes: []"},
	} {
		stdout, stderr, status := run(t, env, strings.Fields(line)...)
		for _, want := range append(wants, "") {
			if text := strings.Join(strings.Fields(stdout), " "); status != 0 || stderr != "" || !strings.Contains(text, want) {
				t.Errorf("%s: status %d, want %q\n%s%s", line, status, want, stdout, stderr)
			}
		}
		if stdout, stderr, status = run(t, env, append(strings.Fields(line), "--json")...); status != 0 || stderr != "" || !isJSON(stdout) {
			t.Errorf("%s --json: status %d\n%s%s", line, status, stdout, stderr)
		}
	}
	env = append(env, "TRIPRIZE_POSTGRES_URL="+s.Settings.Postgres.URL, "TRIPRIZE_REDIS_URL="+s.Settings.Redis.URL, "TRIPRIZE_REDIS_NAMESPACE="+s.Settings.Redis.Namespace,
		"TRIPRIZE_DRAW_SECRET_KEY="+s.Settings.Draw.SecretKey, "TRIPRIZE_POSTGRES_CONNECT_TIMEOUT=10m", "TRIPRIZE_REDIS_TIMEOUT=10m")
	stdout, stderr, _ := run(t, env, "doctor")
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "wrong") && !strings.HasPrefix(line, "wrong  durability of postgres: fsync off") { // the servers of tests do not sync
			t.Error(line)
		}
	}
	if inOrder(t, stdout, "ok     schema", " triprize-api", "ok     draw key: opens the secrets of 1 unfinished campaigns", "ok     redis: a key was written"); stderr != "" && !strings.Contains(stderr, "things are wrong") {
		t.Error(stderr)
	}
}

// isJSON reports whether each line is a document.
func isJSON(lines string) bool {
	for line := range strings.Lines(lines) {
		if !json.Valid([]byte(line)) {
			return false
		}
	}
	return lines != ""
}
