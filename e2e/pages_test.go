package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/checks"
	"triprize/internal/entry/httpapi"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
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
	servers.NoError(t, err)
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
	cmd := exec.Command("sh", "-eu", "-c", strings.NewReplacer("wait=10", fleet.UntilFinal, "--max-time 2 ", "--max-time 20 ").Replace(script)) // on any machine
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
	servers.NoError(t, err)
	for _, o := range d.Operations {
		want := "anybody"
		if o.Open {
			want = "anybody, once it is published"
		} else if len(o.Roles) > 0 {
			order := []string{"operator", "approver", "viewer", "app", "user", "public"}
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

var (
	fenced    = regexp.MustCompile("(?s)(?:^|\n) *```.*?\n *```")
	link      = regexp.MustCompile(`\]\(([^)\s#]*)(?:#([^)\s]*))?(?: "[^"]*")?\)`)
	heading   = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the names of the headings of a page, as GitHub makes them.
func anchors(page string) (names []string) {
	seen := make(map[string]int)
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		text := strings.ToLower(linkText.ReplaceAllString(found[1], "$1"))
		name := strings.ReplaceAll(notInSlug.ReplaceAllString(text, ""), " ", "-")
		if seen[name]++; seen[name] > 1 {
			name += "-" + string(rune('0'+seen[name]-1))
		}
		names = append(names, name)
	}
	return names
}

func TestEveryLinkOfThePagesLeadsToAFileAndAHeading(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, ".md") {
		for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(document(t, file), ""), -1) {
			target, anchor := found[1], found[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := file
			if target != "" {
				to = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", file, target, err)
			} else if anchor != "" && strings.HasSuffix(to, ".md") && !slices.Contains(anchors(document(t, to)), anchor) {
				t.Errorf("%s links to #%s, which %s does not have", file, anchor, to)
			}
		}
	}
}

// runAsTheyAre are the pages whose blocks tests paste into a shell.
var runAsTheyAre = []string{guide, walkThrough, webhooksGuide, "../docs/test-cards.md"}

// A block that no test runs names commands that there are, with flags that they have, or
// has a comment before it that says who runs it or why nobody does: "<!-- a test …", "<!-- not run …".
func TestEveryCommandOfThePagesExists(t *testing.T) {
	t.Parallel()
	makefile := document(t, "../Makefile")
	for _, file := range files(t, ".md") {
		if slices.Contains(runAsTheyAre, file) {
			continue
		}
		rehearsed := filepath.Dir(file) == "../docs/runbooks" // the rehearsals run those blocks
		text := document(t, file)
		for _, at := range regexp.MustCompile("(?m)^```sh\n").FindAllStringIndex(text, -1) {
			if before := strings.TrimRight(text[:at[0]], "\n"); regexp.MustCompile(`<!-- (a test|not run) [^\n]*-->$`).MatchString(before) {
				continue
			}
			block, _, _ := strings.Cut(text[at[1]:], "```")
			for line := range strings.Lines(block) {
				command, _, _ := strings.Cut(line, "#")
				words := strings.Fields(command)
				if len(words) == 0 {
					continue
				}
				switch name := filepath.Base(words[0]); name {
				case "make":
					if len(words) > 1 && !strings.Contains(makefile, "\n"+words[1]+":") {
						t.Errorf("%s: there is no make %s", file, words[1])
					}
				case "triprize", "triprize-dev", "scheduler", "api", "worker":
					commandExists(t, file, name, words[1:])
				default:
					if rehearsed {
						continue
					}
					t.Errorf("%s: who runs this? Say it in a comment before the block: %s", file, line)
				}
			}
		}
	}
}

// commandExists asks a program for help about a command; what is not a flag and not in
// small letters is its argument.
func commandExists(t *testing.T, file, program string, words []string) {
	t.Helper()
	var names []string
	for _, word := range words {
		if !regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(word) {
			break
		}
		names = append(names, word)
	}
	out, err := exec.Command(filepath.Join(filepath.Dir(triprize(t)), program), append(slices.Clone(names), "--help")...).CombinedOutput()
	help := strings.ReplaceAll(string(out), "  -", "  --") // package flag writes one
	if want := strings.Join(append([]string{program}, names...), " "); err != nil || !strings.Contains(help, want) {
		t.Errorf("%s: there is no %s: %v\n%s", file, want, err, out)
	}
	for _, word := range words {
		if name, _, _ := strings.Cut(word, "="); strings.HasPrefix(name, "--") && !regexp.MustCompile(name+`\b`).MatchString(help) {
			t.Errorf("%s: %v: there is no flag %s:\n%s", file, words, name, help)
		}
	}
}

// runbooks returns all pages of runbooks but their index, as one text.
func runbooks(t *testing.T) (text string) {
	t.Helper()
	files, err := filepath.Glob("../docs/runbooks/*.md")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if filepath.Base(file) != "README.md" {
			text += document(t, file)
		}
	}
	return text
}

// Each alert leads to a section that says what an operator needs, is in the index with its
// severity, and was rehearsed; no section and no route is about an alert that there is not; and what must stay 0 has an alert.
func TestEveryAlertHasItsRunbookAndItsRehearsal(t *testing.T) {
	t.Parallel()
	index, rehearsals := document(t, "../docs/runbooks/README.md"), document(t, "rehearsals_soak_test.go")
	words := regexp.MustCompile(`(?s)\*\*Meaning\.\*\*.+\*\*Check\.\*\*.+\x60\x60\x60sh\n.+\*\*Fix\.\*\*.+\*\*Resolved when\*\* .+`)
	names, expressions := make(map[string]bool), ""
	for _, a := range checks.All {
		shown := map[checks.State]string{checks.Critical: "**page**", checks.Warning: "ticket"}[a.State]
		if shown == "" || a.Expr == "" { // it is no alert
			continue
		}
		names[a.Alert] = true
		expressions += a.Expr + "\n"
		page, anchor, _ := strings.Cut(a.Runbook(), "#")
		_, section, _ := strings.Cut(document(t, "../docs/runbooks/"+page), "\n## "+a.Alert+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !words.MatchString(section) {
			t.Errorf("%s: %s lacks the meaning, the check, the fix or when it is resolved", a.Alert, a.Runbook())
		}
		if strings.Contains(a.Expr, ":ratio3d") { // the slow part of an alert that pages, too
			shown = "**page**"
		}
		row := regexp.MustCompile(`(?m)^\| \[` + a.Alert + `\]\(` + page + `#` + anchor + `\) \|.*` + regexp.QuoteMeta(shown) + `.*\|$`)
		if !row.MatchString(index) {
			t.Errorf("%s: %s; the index has to show it", a.Alert, a.State)
		}
		if objective := strings.Contains(a.Expr, ":ratio"); !objective && !regexp.MustCompile(`"`+a.Alert+`[" ]`).MatchString(rehearsals) {
			t.Errorf("%s was never rehearsed", a.Alert)
		}
	}
	routed := regexp.MustCompile(`Triprize[A-Za-z]+`).FindAllString(document(t, "../deploy/alertmanager/alertmanager.yml"), -1)
	for _, found := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(runbooks(t), -1) {
		routed = append(routed, found[1])
	}
	for _, name := range routed { // routes and inhibitions name alerts by hand
		if !names[name] {
			t.Errorf("a runbook or a route names %s, which is no alert", name)
		}
	}
	mustStay := regexp.MustCompile("(?m)^- `(triprize_\\w+)[{`].*(?i:must|should) stay 0").FindAllStringSubmatch(document(t, monitoring), -1)
	if len(mustStay) < 9 {
		t.Fatalf("the list of metrics has %d that must stay 0", len(mustStay))
	}
	for _, one := range mustStay { // nobody reads a counter at night
		if !regexp.MustCompile(one[1] + `\b`).MatchString(expressions) {
			t.Errorf("no alert has %s", one[1])
		}
	}
}

// A promise is worth the test that is named beside it.
func TestThePromisesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	tests := ""
	for _, file := range files(t, "_test.go") {
		tests += document(t, file)
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
			if !strings.Contains(tests, "\nfunc "+name[1]+"(t *testing.T) {") {
				t.Errorf("there is no test %s", name[1])
			}
		}
	}
}
