//go:build web

package api

import (
	"os"
	"os/exec"
	"testing"
)

func TestTheDocumentPassesTheLinter(t *testing.T) {
	t.Parallel()
	spectral := absolute(t, "tools/npm/node_modules/.bin/spectral")
	if _, err := os.Stat(spectral); err != nil {
		t.Fatal("spectral is not installed: run make npm")
	}
	out, err := exec.Command(spectral, "lint", "--ruleset", absolute(t, "tools/npm/spectral.yaml"), "--fail-severity", "hint",
		absolute(t, "api/openapi.yaml")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
