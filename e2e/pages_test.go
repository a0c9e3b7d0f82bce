package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
				case "triprize", "triprize-dev":
					commandExists(t, file, name, words[1:])
				case "scheduler", "api", "worker":
					out, _ := exec.Command(filepath.Join(filepath.Dir(triprize(t)), name), "--help").CombinedOutput()
					flagsExist(t, file, words[1:], strings.ReplaceAll(string(out), "  -", "  --"))
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

// commandExists asks the tool for help about a command; what is not a flag and not in
// small letters is its argument.
func commandExists(t *testing.T, file, tool string, words []string) {
	t.Helper()
	var names []string
	for _, word := range words {
		if !regexp.MustCompile(`^[a-z-]+$`).MatchString(word) || strings.HasPrefix(word, "-") {
			break
		}
		names = append(names, word)
	}
	out, err := exec.Command(filepath.Join(filepath.Dir(triprize(t)), tool), append(slices.Clone(names), "--help")...).CombinedOutput()
	if want := tool + " " + strings.Join(names, " "); err != nil || !bytes.Contains(out, []byte(want)) {
		t.Errorf("%s: there is no %s: %v\n%s", file, want, err, out)
	}
	flagsExist(t, file, words, string(out))
}

func flagsExist(t *testing.T, file string, words []string, help string) {
	t.Helper()
	for _, word := range words {
		if name, _, _ := strings.Cut(word, "="); strings.HasPrefix(name, "--") && !regexp.MustCompile(name+`\b`).MatchString(help) {
			t.Errorf("%s: %v: there is no flag %s:\n%s", file, words, name, help)
		}
	}
}
