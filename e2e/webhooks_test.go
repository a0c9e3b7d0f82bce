//go:build web

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/devkit/devstack"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// receiver is an app's receiver in Node, which verifies with the library from npm.
type receiver struct {
	t   *testing.T
	env []string

	mu  sync.Mutex
	ids map[string]string // of events, by type and subject
}

// open starts it; the returned function kills it.
func (r *receiver) open(secrets ...string) (kill func()) {
	r.t.Helper()
	return startNode(r.t, "testdata/receiver.mjs", append(r.env, "SECRETS="+strings.Join(secrets, ",")), `"ready"`, func(line string) {
		var event struct{ ID, Type, Subject, Bad string }
		if json.Unmarshal([]byte(line), &event) != nil || event.ID+event.Bad == "" {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		what := event.Type + " " + event.Subject
		if known := r.ids[what]; event.Bad != "" || known != "" && known != event.ID {
			r.t.Errorf("the library from npm says %s; the id was %q", line, known)
		}
		r.ids[what] = event.ID
	})
}

func (r *receiver) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.ids))
}

func TestAReceiverThatIsKilledAndAwayForADayHearsOfEverythingThatTheTablesSay(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8", "TRIPRIZE_SWEEPS_DUE_ITEMS_INTERVAL=100ms"}})
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	modules, err := filepath.Abs("../tools/npm/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "standardwebhooks")); err != nil {
		t.Fatal("standardwebhooks is not installed: run make npm")
	}
	app := &receiver{t: t, env: []string{"PORT=" + address[strings.LastIndexByte(address, ':')+1:], "MODULES=" + modules}, ids: make(map[string]string)}
	type endpoint struct {
		ID     uuid.UUID
		Secret string
	}
	made := fleet.As[endpoint](t, s.Execute("/v1/webhook-endpoints", fleet.Fields{"url": "http://" + address + "/hook", "events": []string{"purchase.*", "campaign.*", "job.failed"}}))
	id, shop := s.Campaign(3), s.App
	buy := func(users ...string) {
		t.Helper()
		for _, user := range users {
			if a := s.Buy(fleet.Order{Campaign: id, User: user, Wait: true}); a.State != job.Succeeded {
				t.Fatalf("%s: %v %s", user, a, a.Body)
			}
		}
	}
	// await waits until a number of events was heard of, while time passes: what would be due later is due now.
	await := func(want int) {
		t.Helper()
		servers.Eventually(t, "the events that are waited for", func() bool {
			for _, sql := range []string{`UPDATE webhook_deliveries SET next_at = clock_timestamp() WHERE state = 'pending'`, `UPDATE webhook_endpoints SET paused_until = NULL, due_at = clock_timestamp()`} {
				servers.Exec(t, s.DB, sql)
			}
			return len(app.heard()) >= want
		})
	}
	buy("a") // nobody listens yet: its attempts fail
	kill := app.open(made.Secret)
	await(1)
	kill()
	buy("b")
	s.App = s.NewKey("another")
	buy("not ours")
	s.App = shop
	servers.Eventually(t, "an attempt in vain", func() bool {
		return servers.Value[bool](t, s.DB, `SELECT EXISTS (SELECT FROM webhook_attempts WHERE error IS NOT NULL)`)
	})
	// A day passes.
	servers.Exec(t, s.DB, `UPDATE webhook_endpoints SET failing_since = failing_since - interval '1 day' WHERE failing_since IS NOT NULL`)
	rotated := fleet.As[endpoint](t, s.Execute("/v1/webhook-endpoints/"+made.ID.String()+"/rotate-secret", fleet.Fields{"overlap_seconds": 3600}))
	app.open(made.Secret, rotated.Secret) // both verify
	buy("c", "d", "e")                    // the last position
	s.AwaitDrawn(id)
	rows, err := s.DB.Query(t.Context(), `SELECT 'purchase.completed ' || id FROM purchases WHERE user_id <> 'not ours'`)
	if err != nil {
		t.Fatal(err)
	}
	want, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"sold_out", "drawing", "frozen", "drawn"} {
		want = append(want, fmt.Sprintf("campaign.%s %s", what, id))
	}
	await(len(want))
	if slices.Sort(want); len(want) != 5+4 || !slices.Equal(app.heard(), want) {
		t.Errorf("it has heard of\n%q\nand the tables say\n%q", app.heard(), want)
	}
	if a := s.Read("/v1/webhook-endpoints/" + made.ID.String()); !fleet.Contains(a.Body, `"state":"enabled"`) {
		t.Errorf("the endpoint: %s", a.Body)
	}
}
