package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"triprize/internal/store/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// choosy is an app's receiver that answers 401 to what is about one purchase.
type choosy struct {
	sync.Mutex
	refuses string
	tried   map[string]int    // by purchase
	taken   map[string]string // by purchase: the webhook-id
}

func (r *choosy) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var event struct{ Data struct{ ID string } }
	body, err := io.ReadAll(request.Body)
	r.Lock()
	defer r.Unlock()
	if err != nil || json.Unmarshal(body, &event) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.tried[event.Data.ID]++
	if r.refuses == "" {
		r.refuses = event.Data.ID // the first
	}
	if r.refuses == event.Data.ID {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.taken[event.Data.ID] = request.Header.Get("webhook-id")
}

func (r *choosy) has(t *testing.T, what string, is func() bool) {
	t.Helper()
	servers.Eventually(t, what, func() bool {
		r.Lock()
		defer r.Unlock()
		return is()
	})
}

// listen is killed while its receiver refuses the first event and has taken the second.
func TestListenGoesOnBesideARefusedEventAndMissesNothingWhenItIsKilled(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{fleet.Lively}, Schedulers: -1})
	receiver := &choosy{tried: make(map[string]int), taken: make(map[string]string)}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	id, resume := s.Campaign(4), filepath.Join(t.TempDir(), "place.json")
	listen := func() (kill func()) {
		t.Helper()
		cmd := exec.Command(triprize(t), "listen", "--api", s.URLs[0], "--events", "purchase.completed", "--forward-to", server.URL, "--resume", resume)
		cmd.Env, cmd.Stderr = append(os.Environ(), "APP="+s.App), os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		t.Cleanup(kill)
		return kill
	}
	buy := func(user string) string {
		t.Helper()
		a := s.Buy(fleet.Order{Campaign: id, User: user, Wait: true})
		if a.State != job.Succeeded {
			t.Fatalf("%s: %v", user, a)
		}
		return a.Result.PurchaseID.String()
	}
	kill := listen()
	servers.Eventually(t, "it listens", func() bool { _, err := os.Stat(resume); return err == nil })
	first := buy("a")
	receiver.has(t, "the first is refused", func() bool { return receiver.tried[first] > 0 })
	second := buy("b")
	receiver.has(t, "the second comes all the same", func() bool { return receiver.taken[second] != "" })
	receiver.has(t, "the first is tried again", func() bool { return receiver.tried[first] > 1 })
	kill()
	third := buy("c") // while nobody listens

	kill = listen()
	receiver.has(t, "what has happened meanwhile comes", func() bool { return receiver.taken[third] != "" })
	receiver.Lock()
	before := receiver.tried[first]
	receiver.Unlock()
	receiver.has(t, "the first is still tried", func() bool { return receiver.tried[first] > before })
	receiver.Lock()
	receiver.refuses = "nothing"
	receiver.Unlock()
	receiver.has(t, "the first is taken", func() bool { return receiver.taken[first] != "" })
	place := func() string {
		var state struct{ Place string }
		data, err := os.ReadFile(resume)
		if err != nil || json.Unmarshal(data, &state) != nil {
			return ""
		}
		return state.Place
	}
	was := place()
	last := buy("d")
	receiver.has(t, "the last is taken", func() bool { return receiver.taken[last] != "" })
	servers.Eventually(t, "its place is written", func() bool { return place() != was && place() != "" })
	kill()
	receiver.Lock()
	before = receiver.tried[last]
	receiver.Unlock()
	listen()
	final := buy("e")
	receiver.has(t, "it goes on", func() bool { return receiver.taken[final] != "" })
	receiver.Lock()
	defer receiver.Unlock()
	if receiver.tried[last] != before {
		t.Errorf("what was taken, with all before it, came %d times", receiver.tried[last])
	}
}
