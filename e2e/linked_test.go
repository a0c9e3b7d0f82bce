package e2e

import (
	"debug/buildinfo"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Only the api links the HTTP server: the others compile, link and start without it.
func TestOnlyTheAPILinksTheHTTPServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(triprize(t))
	for name, wanted := range map[string]bool{"api": true, "worker": false, "scheduler": false, "triprize": false} {
		info, err := buildinfo.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		linked := false
		for _, module := range info.Deps {
			linked = linked || module.Path == "github.com/gofiber/fiber/v2"
		}
		if linked != wanted {
			t.Errorf("%s links Fiber: %v, wanted %v", name, linked, wanted)
		}
	}
}

// No program of an installation has what plays the world in development.
func TestNoProgramOfAnInstallationLinksTheDevelopersTool(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "triprize/cmd/api", "triprize/cmd/worker", "triprize/cmd/scheduler", "triprize/cmd/triprize").Output()
	if err != nil || !strings.Contains(string(out), "triprize/internal/") {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(out)) {
		if strings.HasPrefix(name, "triprize/devkit") || strings.HasPrefix(name, "triprize/sandbox") {
			t.Errorf("it is linked: %s", name)
		}
	}
}
