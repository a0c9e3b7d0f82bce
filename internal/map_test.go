package internal_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	mapPage = "README.md"
	mapHead = "<!-- The rest of this page is generated from the packages' doc comments: make generate. -->\n"
)

var updateMap = flag.Bool("update", false, "write the map of the packages")

// docLinks are the links in parentheses that a sentence can do without.
var docLinks = regexp.MustCompile(` \(\[[^)]*\]\)|[\[\]]`)

// The floors, from the top.
var floors = []string{"entry", "topics", "platform", "domain", "testkit"}

// The map is the first sentence of each package's doc comment.
func TestTheMapOfThePackagesIsCurrent(t *testing.T) {
	t.Parallel()
	lines, imports := make(map[string][]string), make(map[string][]string)
	eachFile(t, parser.ImportsOnly|parser.ParseComments, func(dir string, file *ast.File) {
		from := room(dir)
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if path, ours := strings.CutPrefix(path, "triprize/internal/"); ours && isTopic(room(path)) && room(path) != from {
				imports[from] = append(imports[from], room(path))
			}
		}
		floor, name, _ := strings.Cut(dir, "/")
		if isTopic(from) {
			floor, name = "topics", dir
		}
		if file.Doc == nil || ast.IsGenerated(file) {
			return
		}
		_, sentence, _ := strings.Cut(new(doc.Package).Synopsis(file.Doc.Text()), "Package "+file.Name.Name+" ")
		if len(sentence) == 0 || len(sentence) > 100 {
			t.Errorf("%s: the first sentence of the doc comment has %d characters after the package's name; the map takes 1 to 100", dir, len(sentence))
		}
		lines[floor] = append(lines[floor], fmt.Sprintf("- `%s` %s\n", name, docLinks.ReplaceAllString(sentence, "")))
	})
	rank := func(line string) int {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "- `"), "`")
		return slices.Index(slices.Concat(topics, leaves), room(name))
	}
	var generated strings.Builder
	for _, floor := range floors {
		slices.SortFunc(lines[floor], func(a, b string) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a, b)) })
		fmt.Fprintf(&generated, "\n## %s\n\n%s", floor, strings.Join(slices.Compact(lines[floor]), ""))
		delete(lines, floor)
	}
	for floor := range lines {
		t.Errorf("%s is neither a floor nor a topic", floor)
	}
	generated.WriteString("\n## What topics import\n\n")
	for _, topic := range slices.Concat(topics, leaves) {
		below := slices.DeleteFunc(slices.Concat(topics), func(t string) bool { return !slices.Contains(imports[topic], t) })
		fmt.Fprintf(&generated, "- `%s`: %s\n", topic, cmp.Or(strings.Join(below, ", "), "none"))
	}
	page, err := os.ReadFile(mapPage)
	if err != nil {
		t.Fatal(err)
	}
	head, tail, found := strings.Cut(string(page), mapHead)
	if !found {
		t.Fatalf("%s has no place for the map", mapPage)
	}
	if *updateMap {
		if err := os.WriteFile(mapPage, []byte(head+mapHead+generated.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if tail != generated.String() {
		t.Errorf("the map in internal/%s is old: make generate", mapPage)
	}
}
