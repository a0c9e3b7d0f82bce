package e2e

import (
	"debug/buildinfo"
	"path/filepath"
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
