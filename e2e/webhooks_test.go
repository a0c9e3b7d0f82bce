//go:build web

package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/devkit/devstack"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// received is what a receiver has verified with the library from npm.
type received struct{ ID, Type, Subject, Bad string }

// shop is an app's receiver in Node, which the test kills and starts again.
type shop struct {
	t    *testing.T
	port string
	mu   sync.Mutex
	all  []received
}

// open starts the receiver; the returned function kills it.
func (s *shop) open(secrets ...string) (kill func()) {
	s.t.Helper()
	modules, err := filepath.Abs("../tools/npm/node_modules")
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "standardwebhooks")); err != nil {
		s.t.Fatal("standardwebhooks is not installed: run make npm")
	}
	node := exec.Command("node", "testdata/receiver.mjs", s.port)
	node.Env = append(os.Environ(), "SECRETS="+strings.Join(secrets, ","), "MODULES="+modules)
	node.Stderr = os.Stderr
	out, err := node.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var line struct {
				received
				Ready bool
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue
			}
			if line.Ready {
				close(ready)
				continue
			}
			s.mu.Lock()
			s.all = append(s.all, line.received)
			s.mu.Unlock()
		}
	}()
	kill = sync.OnceFunc(func() {
		_ = node.Process.Kill()
		<-done
		_ = node.Wait()
	})
	s.t.Cleanup(kill)
	select {
	case <-ready:
	case <-done:
		s.t.Fatal("the receiver has ended")
	case <-time.After(servers.Patience):
		s.t.Fatal("the receiver is not ready")
	}
	return kill
}

// heard returns how often each event was verified, by type and subject.
func (s *shop) heard() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, ids := make(map[string]int), make(map[string]string)
	for _, r := range s.all {
		what := r.Type + " " + r.Subject
		if r.Bad != "" {
			s.t.Errorf("the library from npm refuses a message: %s", r.Bad)
			continue
		}
		if events[what]++; ids[what] != "" && ids[what] != r.ID {
			s.t.Errorf("%s has two ids: %s and %s", what, ids[what], r.ID)
		}
		ids[what] = r.ID
	}
	return events
}

func TestAReceiverThatIsKilledAndAwayForADayHearsOfEverythingThatTheTablesSay(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8", "TRIPRIZE_SWEEPS_DUE_ITEMS_INTERVAL=100ms"}})
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	receiver := &shop{t: t, port: address[strings.LastIndexByte(address, ':')+1:]}
	var endpoint struct {
		ID     uuid.UUID
		Secret string
	}
	ask := func(path string, body any) fleet.Answer {
		t.Helper()
		a := s.Do(0, s.App, http.MethodPost, "/v1/webhook-endpoints"+path, map[string]string{"Idempotency-Key": uuid.NewString()}, body)
		if a.Status/100 != 2 {
			t.Fatalf("%s: %v %s", path, a, a.Body)
		}
		return a
	}
	made := ask("", map[string]any{"url": "http://127.0.0.1:" + receiver.port + "/hook", "events": []string{"purchase.*", "campaign.*", "job.failed"}})
	if err := json.Unmarshal(made.Body, &endpoint); err != nil {
		t.Fatal(err)
	}
	id := s.Campaign(3)
	buy := func(credential, user string) {
		t.Helper()
		a := s.Do(0, credential, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": fleet.UntilFinal},
			map[string]any{"user_id": user, "selection": map[string]int{"quantity": 1}, "payment": map[string]string{"method": "external"}})
		if a.State != job.Succeeded {
			t.Fatalf("%s: %v %s", user, a, a.Body)
		}
	}
	// await waits until a number of events was heard of, while time passes: what would be due later is due now.
	await := func(want int) {
		t.Helper()
		servers.Eventually(t, "the events that are waited for", func() bool {
			for _, sql := range []string{`UPDATE webhook_deliveries SET next_at = clock_timestamp() WHERE state = 'pending'`, `UPDATE webhook_endpoints SET paused_until = NULL, due_at = clock_timestamp()`} {
				servers.Exec(t, s.DB, sql)
			}
			return len(receiver.heard()) >= want
		})
	}
	buy(s.App, "a") // nobody listens yet: its attempts fail
	kill := receiver.open(endpoint.Secret)
	await(1)
	kill()
	buy(s.App, "b")
	buy(s.NewKey("another"), "not ours")
	servers.Eventually(t, "an attempt in vain", func() bool {
		var n int
		return s.DB.QueryRow(t.Context(), `SELECT count(*) FROM webhook_attempts WHERE error IS NOT NULL`).Scan(&n) == nil && n > 0
	})
	// A day passes.
	servers.Exec(t, s.DB, `UPDATE webhook_endpoints SET failing_since = failing_since - interval '1 day' WHERE failing_since IS NOT NULL`)
	rotated := ask("/"+endpoint.ID.String()+"/rotate-secret", map[string]any{"overlap_seconds": 3600})
	first := endpoint.Secret
	if err := json.Unmarshal(rotated.Body, &endpoint); err != nil {
		t.Fatal(err)
	}
	kill = receiver.open(first, endpoint.Secret) // both verify
	buy(s.App, "c")
	buy(s.App, "d")
	buy(s.App, "e") // the last position
	s.AwaitDrawn(id)
	const purchases, campaigns = 5, 4
	await(purchases + campaigns)
	kill()

	want := make(map[string]bool)
	for _, what := range []string{"sold_out", "drawing", "frozen", "drawn"} {
		want["campaign."+what+" "+id.String()] = true
	}
	rows, err := s.DB.Query(t.Context(), `SELECT id FROM purchases WHERE user_id <> 'not ours'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var purchase uuid.UUID
		if err := rows.Scan(&purchase); err != nil {
			t.Fatal(err)
		}
		want["purchase.completed "+purchase.String()] = true
	}
	if rows.Err() != nil || len(want) != purchases+campaigns {
		t.Fatalf("%d events are to be heard of, %v", len(want), rows.Err())
	}
	heard := receiver.heard()
	for what := range want {
		if heard[what] == 0 {
			t.Errorf("never heard of %s", what)
		}
	}
	for what := range heard {
		if !want[what] {
			t.Errorf("heard of %s, which is not in the tables, or another client's", what)
		}
	}
}
