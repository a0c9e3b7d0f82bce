//go:build soak

package e2e

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// Both primaries are killed in the middle of a sale, and again while its draw waits for a round.
func TestASaleAndItsDrawOutliveTheirPrimaries(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sentinel", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := openDir(t)
			cmd, dev := startDev(t, dir, "--redis", kind, "--postgres", "standby", "--beacon")
			settings := servers.Defaults(t)
			settings.Postgres.URL = dev.PostgresURL
			s := &fleet.System{T: t, URLs: []string{dev.APIURL}, App: dev.AppKey, Operator: dev.OperatorKey, DB: servers.Pool(t, settings)}
			relays := func(method string) {
				for _, relay := range dev.Beacon.Relays {
					dev.want(t, http.StatusOK, method, strings.TrimPrefix(relay, "http://")+"/control/faults", "", map[string]any{"away": "hang"})
				}
			}
			relays(http.MethodPut)
			body := fleet.CampaignBody(10)
			body["policies"] = map[string]any{"beacon": true}
			created := s.Post("/v1/campaigns", body)
			fleet.Want(t, http.StatusOK, s.Post("/v1/campaigns/"+created.ID.String()+"/publish", nil))
			sale := queueUp(s, created.ID, 10, 8)
			sale.underWay()
			now := killPrimaries(t, dir, dev)
			if n := sale.succeeded(); n != 55 {
				t.Errorf("%d orders succeeded for 55 positions", n)
			}
			state := func(want string) {
				servers.Eventually(t, "the campaign is "+want, func() bool { return dev.stateOf(t, created.ID.String()) == want })
			}
			state("drawing")
			killPrimaries(t, dir, now)
			relays(http.MethodDelete)
			state("completed")
			s.DB = servers.Pool(t, settings) // without connections to servers that are gone
			expectRecordsOnce(s, created.ID)
			fixture.Sound(t, s.DB)
			last, _ := readAbout(dir)
			servers.NoError(t, cmd.Process.Signal(os.Interrupt))
			if err := cmd.Wait(); err != nil {
				t.Errorf("dev ended with %v", err)
			}
			noneLeft(t, last)
		})
	}
}

// killPrimaries kills the primaries, and waits until others have replaced them and all eight servers run.
func killPrimaries(t *testing.T, dir string, of about) (now about) {
	t.Helper()
	for _, pid := range []int{of.PIDs.RedisPrimary, of.PIDs.PostgresPrimary} {
		servers.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	servers.Eventually(t, "others are the primaries", func() (ok bool) {
		now, ok = readAbout(dir)
		return ok && len(now.PIDs.Servers) == 8 && now.PIDs.RedisPrimary != of.PIDs.RedisPrimary && now.PIDs.PostgresPrimary != of.PIDs.PostgresPrimary
	})
	return now
}
