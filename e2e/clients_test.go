//go:build web

package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	collection = "../docs/postman/triprize.postman_collection.json"
	newman     = "../tools/npm/node_modules/.bin/newman"
)

func TestThePostmanCollectionPasses(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(newman); err != nil {
		t.Fatal("newman is not installed: run make npm")
	}
	text := document(t, collection)
	if strings.Contains(text, "async ") { // newman calls such a test passed before it has run
		t.Error("a test that waits must take done")
	}
	_, dev := startDev(t, openDir(t))
	out, err := exec.Command(newman, "run", collection, "--env-var", "base_url="+dev.APIURL,
		"--env-var", "operator_key="+dev.OperatorKey, "--env-var", "app_key="+dev.AppKey, "--color", "off").CombinedOutput()
	if err != nil {
		t.Errorf("newman: %v\n%s", err, out)
	}
	ran := regexp.MustCompile(`assertions\s*\S\s*(\d+)\s*\S\s*0\b`).FindSubmatch(out)
	if ran == nil {
		t.Fatalf("newman has no line of assertions of which none failed:\n%s", out)
	}
	if n, err := strconv.Atoi(string(ran[1])); err != nil || n < strings.Count(text, "pm.test(") { // those of a folder run for each of its requests
		t.Errorf("of %d tests %d were run, %v", strings.Count(text, "pm.test("), n, err)
	}
}
