//go:build web

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	collection = "../docs/postman/triprize.postman_collection.json"
	newman     = "../tools/npm/node_modules/.bin/newman"
)

// postmanItem is a request of a collection, a folder, or the collection itself.
type postmanItem struct {
	Name  string
	Item  []postmanItem
	Event []struct{ Script struct{ Exec []string } }
}

// tests returns how many tests stand in the item's own scripts.
func (i postmanItem) tests() (n int) {
	for _, event := range i.Event {
		n += strings.Count(strings.Join(event.Script.Exec, "\n"), "pm.test(")
	}
	return n
}

// results returns how many results a run has: every request runs its own tests,
// and those of its folder and of the collection.
func (i postmanItem) results(t *testing.T, inherited int) (n int) {
	t.Helper()
	if len(i.Item) == 0 {
		if i.tests() == 0 {
			t.Errorf("%s: nothing is expected of the answer", i.Name)
		}
		return inherited + i.tests()
	}
	for _, child := range i.Item {
		n += child.results(t, inherited+i.tests())
	}
	return n
}

// newmanReport is what the json reporter writes.
type newmanReport struct {
	Run struct {
		Stats struct {
			Assertions struct{ Total, Pending, Failed int }
			Requests   struct{ Total, Failed int }
		}
		Failures []struct {
			Error  struct{ Message string }
			Source struct{ Name string }
		}
	}
}

func TestThePostmanCollectionPasses(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(newman); err != nil {
		t.Fatal("newman is not installed: run make npm")
	}
	data, err := os.ReadFile(collection)
	if err != nil {
		t.Fatal(err)
	}
	var whole postmanItem
	if err := json.Unmarshal(data, &whole); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"Normal purchase", "Replay", "Refusals", "Double click", "Cancellation", "Concurrent", "Sold out", "Holds", "Wallets", "Cards"} {
		if !slices.ContainsFunc(whole.Item, func(i postmanItem) bool { return i.Name == folder }) {
			t.Errorf("there is no folder %q", folder)
		}
	}
	if strings.Contains(string(data), "async ") { // newman calls such a test passed before it has run
		t.Error("a test that waits must take done")
	}

	_, dev := startDev(t, openDir(t))
	result := filepath.Join(t.TempDir(), "newman.json")
	out, err := exec.Command(newman, "run", collection, "--env-var", "base_url="+dev.APIURL,
		"--env-var", "operator_key="+dev.OperatorKey, "--env-var", "app_key="+dev.AppKey,
		"--reporters", "cli,json", "--reporter-json-export", result, "--color", "off").CombinedOutput()
	if err != nil {
		t.Errorf("newman: %v\n%s", err, out)
	}
	if data, err = os.ReadFile(result); err != nil {
		t.Fatal(err)
	}
	var report newmanReport
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	for _, failure := range report.Run.Failures {
		t.Errorf("%s: %s", failure.Source.Name, failure.Error.Message)
	}
	got, want := report.Run.Stats.Assertions, whole.results(t, 0)
	if got.Total != want || got.Failed != 0 || got.Pending != 0 || report.Run.Stats.Requests.Failed != 0 {
		t.Errorf("of %d tests %d were run, %d failed, %d were skipped; %d requests failed", want, got.Total, got.Failed, got.Pending, report.Run.Stats.Requests.Failed)
	}
}
