package internal_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
var floors = []string{"entry", "maintenance", "service", "store", "platform", "domain", "testkit"}

// The map is the first sentence of each package's doc comment.
func TestTheMapOfThePackagesIsCurrent(t *testing.T) {
	t.Parallel()
	lines := make(map[string][]string)
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		dir := filepath.ToSlash(filepath.Dir(file))
		floor, name, found := strings.Cut(dir, "/")
		if err != nil || parsed.Doc == nil || !found || ast.IsGenerated(parsed) {
			return err
		}
		_, sentence, _ := strings.Cut(new(doc.Package).Synopsis(parsed.Doc.Text()), "Package "+parsed.Name.Name+" ")
		if len(sentence) == 0 || len(sentence) > 100 {
			t.Errorf("%s: the first sentence of the doc comment has %d characters after the package's name; the map takes 1 to 100", dir, len(sentence))
		}
		lines[floor] = append(lines[floor], fmt.Sprintf("- `%s` %s\n", name, docLinks.ReplaceAllString(sentence, "")))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var generated strings.Builder
	for _, floor := range floors {
		if len(lines[floor]) == 0 {
			continue
		}
		slices.Sort(lines[floor])
		fmt.Fprintf(&generated, "\n## %s\n\n%s", floor, strings.Join(slices.Compact(lines[floor]), ""))
		delete(lines, floor)
	}
	for floor := range lines {
		t.Errorf("%s is no floor", floor)
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
