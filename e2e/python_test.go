//go:build web

package e2e

import (
	"os"
	"os/exec"
	"testing"

	"triprize/internal/testkit/fleet"
)

// The tests of the client in Python also run the blocks of docs/python.md.
func TestThePythonClientSellsACampaign(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8"}})
	command := exec.CommandContext(t.Context(), "python3", "-B", "-W", "error::SyntaxWarning", "../examples/python/test_triprize.py")
	command.Env = append(os.Environ(), "API="+s.URLs[0], "APP="+s.App, "CAMPAIGN="+s.Campaign(5).String(), "no_proxy=127.0.0.1")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("the Python client: %v\n%s", err, out)
	}
}
