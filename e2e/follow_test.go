//go:build soak

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// balancer sends one request to one api and the next to another.
func balancer(t *testing.T, apis []string) (address string) {
	t.Helper()
	var to []*httputil.ReverseProxy
	for _, api := range apis {
		u, err := url.Parse(api)
		if err != nil {
			t.Fatal(err)
		}
		to = append(to, httputil.NewSingleHostReverseProxy(u))
	}
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { to[int(n.Add(1))%len(to)].ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	return server.URL
}

// recipe returns the block of the guide that follows a sale, without its end.
func recipe(t *testing.T) string {
	t.Helper()
	_, text, found := strings.Cut(document(t, guide), "<!-- follow:")
	block, _, _ := strings.Cut(text, "\n```\n")
	_, block, isBlock := strings.Cut(block, "```sh\n")
	endless := strings.Replace(block, "--max-time 2 ", "", 1)
	if !found || !isBlock || endless == block {
		t.Fatalf("the recipe is gone: %s", block)
	}
	return endless
}

// Every board that the recipe reads after an event has what the event tells of, although
// each process has a copy that is not a second old.
func TestAQuietSaleFollowedAsTheGuideSays(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 2, Workers: -1, Schedulers: -1})
	id := s.Campaign(6)
	warm := func() {
		for api := range s.URLs {
			s.Do(api, s.App, http.MethodGet, fmt.Sprintf("/v1/campaigns/%s/positions?min_version=%d", id, s.CampaignNow(id).BoardVersion), nil, nil)
		}
	}
	warm()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", recipe(t))
	cmd.Env = append(cmd.Environ(), "API="+balancer(t, s.URLs), "APP="+s.App, "CAMPAIGN="+id.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // curl ends with its shell
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	boards := bufio.NewScanner(out)
	states := make(map[shape.Position]string)
	next := func() (version int64) {
		t.Helper()
		var board struct {
			Version   int64 `json:"board_version"`
			Since     *int64
			Positions []struct {
				shape.Position
				State string
			}
		}
		if !boards.Scan() || json.Unmarshal(boards.Bytes(), &board) != nil || board.Version > 1 && board.Since == nil {
			t.Fatalf("the recipe printed %q, %v", boards.Text(), boards.Err())
		}
		for _, p := range board.Positions {
			states[p.Position] = p.State
		}
		return board.Version
	}
	next()
	for i := range 8 {
		at := fixture.At(6-i/6, 1+i%5)
		warm()
		h := s.MustHold(fleet.HoldOrder{Campaign: id, User: fmt.Sprint("u", i), At: []shape.Position{at}, TTL: 600})
		if told, want := next(), s.CampaignNow(id).BoardVersion; told != want || states[at] != "held" {
			t.Errorf("hold %d made version %d; the board of the event has %d, and the position is %s", i, want, told, states[at])
		}
		warm()
		if i%2 == 1 {
			continue
		}
		if a := s.Release(s.App, h.ID); a.Status != http.StatusNoContent {
			t.Fatal(a)
		}
		if told, want := next(), s.CampaignNow(id).BoardVersion; told != want || states[at] != "available" {
			t.Errorf("release %d made version %d; the board of the event has %d, and the position is %s", i, want, told, states[at])
		}
	}
	cancel()
	_ = cmd.Wait() // it was killed
}
