package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi"
	"triprize/internal/testkit/fleet"
)

const (
	readme        = "../README.md"
	guide         = "../docs/api.md"
	operations    = "../docs/operations.md"
	promises      = "../docs/promises.md"
	walkThrough   = "../docs/walk-through.md"
	webhooksGuide = "../docs/webhooks.md"
)

func document(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// chapter returns what a page has after a text, to its next chapter or its end; it has to be there.
func chapter(t *testing.T, file, begins, ends string) string {
	t.Helper()
	_, text, found := strings.Cut(document(t, file), begins)
	if !found {
		t.Fatalf("%s has no %q", file, begins)
	}
	text, _, _ = strings.Cut(text, ends)
	return text
}

// blocks returns the shell blocks of a Markdown text as one script.
func blocks(text string) string {
	var script strings.Builder
	for {
		_, rest, more := strings.Cut(text, "```sh\n")
		if !more {
			return script.String()
		}
		block, after, _ := strings.Cut(rest, "```")
		script.WriteString(block + "echo\n")
		text = after
	}
}

// paste runs a script as somebody would who pastes it into a terminal.
func paste(t *testing.T, script string, env ...string) string {
	t.Helper()
	if script == "" {
		t.Fatal("there is nothing to run")
	}
	cmd := exec.Command("sh", "-eu", "-c", strings.ReplaceAll(script, "wait=10", fleet.UntilFinal)) // on any machine
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 && !strings.HasPrefix(errs.String(), "curl: (28)") { // the stream that is cut off
		t.Fatalf("%v: %s\n%s", err, &errs, out)
	}
	if strings.Contains(string(out), `"code":"internal-error"`) {
		t.Errorf("an internal error:\n%s", out)
	}
	return string(out)
}

// inOrder tells whether a text has all of the parts, one after the other.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("nothing says %s, or not in its place:\n%s", part, text)
			continue
		}
		rest = after
	}
}

// rows returns the rows of the tables of a text: their cells.
func rows(text string) (all [][]string) {
	for line := range strings.Lines(text) {
		if cells, ok := strings.CutPrefix(strings.TrimSpace(line), "| "); ok {
			all = append(all, strings.Split(strings.TrimSuffix(cells, " |"), " | "))
		}
	}
	return all
}

func TestTheGuideSaysWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	told := make(map[string]string)
	for _, row := range rows(document(t, guide)) {
		for _, operation := range strings.Split(row[1], ", ") { // roles | operations
			told[operation] = row[0]
		}
	}
	d, err := httpapi.LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range d.Operations {
		want := "anybody"
		if o.Open {
			want = "anybody, once it is published"
		} else if len(o.Roles) > 0 {
			order := []string{"operator", "app", "user", "viewer"}
			want = strings.Join(slices.DeleteFunc(order, func(role string) bool { return !slices.Contains(o.Roles, role) }), ", ")
		}
		name := fmt.Sprintf("`%s %s`", o.Method, o.Path)
		if told[name] != want {
			t.Errorf("%s is for %s; the guide says %q", name, want, told[name])
		}
	}
}

func TestTheGuideNamesEveryCodeAndNoOther(t *testing.T) {
	t.Parallel()
	named := make(map[string]bool)
	for _, row := range rows(document(t, guide)) {
		if regexp.MustCompile(`^\d{3}( in (answers|jobs))?$`).MatchString(row[0]) {
			for _, code := range strings.Fields(row[1]) {
				named[strings.Trim(code, "`")] = true
			}
		}
	}
	for _, code := range fault.Codes() {
		if !named[string(code)] {
			t.Errorf("%s is missing", code)
		}
		delete(named, string(code))
	}
	for code := range named {
		t.Errorf("there is no code %s", code)
	}
}

func TestTheSettingsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	var settings map[string]map[string]any
	if err := yaml.Unmarshal([]byte(document(t, "../configs/triprize.yaml")), &settings); err != nil {
		t.Fatal(err)
	}
	sections := strings.Join(slices.Collect(maps.Keys(settings)), "|")
	for _, file := range []string{readme, guide, operations, walkThrough, "../docs/settings.md"} {
		for _, found := range regexp.MustCompile("`("+sections+`)\.([a-z_]+)`).FindAllStringSubmatch(document(t, file), -1) {
			if _, ok := settings[found[1]][found[2]]; !ok {
				t.Errorf("%s names the setting %s.%s", file, found[1], found[2])
			}
		}
	}
}

// A promise is worth the test that is named beside it.
func TestThePromisesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	tests := make(map[string]bool)
	for test := range indexTests(t) { // package.Test
		tests[test[strings.Index(test, ".")+1:]] = true
	}
	listed := strings.Split(document(t, promises), "\n- **")[1:]
	if len(listed) > 60 {
		t.Errorf("there are %d promises, more than 60: reword one as the outcome for a user", len(listed))
	}
	for _, promise := range listed {
		names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(promise, -1)
		if len(names) == 0 {
			t.Errorf("no test is named for: %s", promise)
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("there is no test %s", name[1])
			}
		}
	}
}

// files returns every file of the repository whose name ends so, but those of others.
func files(t *testing.T, ending string) (all []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && file != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if strings.HasSuffix(file, ending) {
			all = append(all, file)
		}
		return err
	})
	if err != nil || len(all) < 40 {
		t.Fatalf("%d files end with %s, %v", len(all), ending, err)
	}
	return all
}
