//go:build web

package web_test

import (
	"bytes"
	"os"
	"testing"

	"triprize/internal/testkit/servers"
	"triprize/web/console"
)

func TestTheLibrariesOfTheConsoleAreThoseOfTheLockFile(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{"htmx.js": "htmx.org/dist/htmx.min.js", "uPlot.js": "uplot/dist/uPlot.iife.min.js", "uPlot.css": "uplot/dist/uPlot.min.css"} {
		installed, err := os.ReadFile("../tools/npm/node_modules/" + source)
		servers.NoError(t, err)
		embedded, err := console.Files.ReadFile("static/" + name)
		servers.NoError(t, err)
		if !bytes.Equal(embedded, installed) {
			t.Errorf("web/console/static/%s is not %s of the lock file: run make generate", name, source)
		}
	}
}
