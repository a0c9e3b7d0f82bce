package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// Only the api links the HTTP server: the others compile, link and start without it. None has what plays the world in development.
func TestTheProgramsOfAnInstallationLinkOnlyWhatTheyNeed(t *testing.T) {
	t.Parallel()
	for name, serves := range map[string]bool{"api": true, "worker": false, "scheduler": false, "triprize": false} {
		out, err := exec.Command("go", "list", "-deps", "triprize/cmd/"+name).Output()
		if linked := string(out); err != nil || strings.Contains(linked, "github.com/gofiber/fiber/v2\n") != serves || strings.Contains(linked, "triprize/devkit") || strings.Contains(linked, "triprize/sandbox") {
			t.Errorf("%s links %s, %v", name, linked, err)
		}
	}
}
