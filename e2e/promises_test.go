package e2e

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"triprize/api"
)

// The contract promises nothing that nothing keeps: each property of a request, and each
// value that an answer may have, is listed with the test that shows it from outside. The
// tests here read the sources; the author of a line vouches that its test fails without
// the effect.

func TestEveryPropertyOfARequestHasATestOfItsEffect(t *testing.T) {
	t.Parallel()
	checkPromises(t, "testdata/properties.txt", requestProperties(contractDocument(t)), func(promise string) string {
		return promise[strings.LastIndex(promise, ".")+1:]
	})
}

// The codes of problems, and the states of what clients follow.
func TestEveryCodeAndStateIsReached(t *testing.T) {
	t.Parallel()
	checkPromises(t, "testdata/values.txt", valuesOf(contractDocument(t)), func(promise string) string {
		return promise[strings.LastIndex(promise, "=")+1:]
	})
}

func contractDocument(t *testing.T) *openapi3.T {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// checkPromises holds a list, `promise package.Test` a line, against what the contract
// promises. A test must say in a string what nameOf returns.
func checkPromises(t *testing.T, file string, promised map[string]bool, nameOf func(promise string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	listed, tests := make(map[string]bool), indexTests(t)
	for line := range strings.Lines(string(text)) {
		lines = append(lines, line)
		promise, test, _ := strings.Cut(strings.TrimSpace(line), " ")
		test = strings.TrimSpace(test)
		listed[promise] = true
		switch {
		case !promised[promise]:
			t.Errorf("%s: the contract has no %s", file, promise)
		case tests[test] == nil:
			t.Errorf("%s: %s: there is no test %q", file, promise, test)
		case !tests[test].says(nameOf(promise)):
			t.Errorf("%s: %s: the source of %s does not say %q", file, promise, test, nameOf(promise))
		}
	}
	for _, promise := range slices.Sorted(maps.Keys(promised)) {
		if !listed[promise] {
			t.Errorf("%s: %s is missing: name the test that fails without its effect", file, promise)
		}
	}
	if !slices.IsSorted(lines) {
		t.Errorf("%s is not sorted: LC_ALL=C sort -u -o %[1]s %[1]s", file)
	}
}

// requestProperties lists the properties of all bodies, Schema.property, the parameters in
// queries, operation.name, and those in headers, header.Name.
func requestProperties(document *openapi3.T) map[string]bool {
	all := make(map[string]bool)
	for _, item := range document.Paths.Map() {
		for _, o := range item.Operations() {
			for _, p := range o.Parameters {
				switch p.Value.In {
				case "query":
					all[o.OperationID+"."+p.Value.Name] = true
				case "header":
					all["header."+p.Value.Name] = true
				}
			}
			if o.RequestBody != nil {
				for _, media := range o.RequestBody.Value.Content {
					addProperties(all, o.OperationID, media.Schema)
				}
			}
		}
	}
	return all
}

func addProperties(all map[string]bool, owner string, schema *openapi3.SchemaRef) {
	if schema == nil || schema.Value == nil {
		return
	}
	if schema.Ref != "" {
		owner = schema.Ref[strings.LastIndex(schema.Ref, "/")+1:]
	}
	for name, property := range schema.Value.Properties {
		all[owner+"."+name] = true
		addProperties(all, owner+"."+name, property)
	}
	for _, part := range slices.Concat(schema.Value.AllOf, schema.Value.AnyOf, schema.Value.OneOf) {
		addProperties(all, owner, part)
	}
	addProperties(all, owner, schema.Value.Items)
}

// followed are the enums whose values are all reached in some test: schemas, and properties
// of schemas.
var followed = []string{"ProblemCode", "CampaignState", "PositionState", "RefundState", "Hold.state", "Job.state", "Purchase.state", "Authorization.state",
	"StreamEnd.reason", "WalletEvent.kind"}

// valuesOf lists the values of what is followed: Schema=value, and Schema.property=value.
func valuesOf(document *openapi3.T) map[string]bool {
	all := make(map[string]bool)
	for _, name := range followed {
		schema, property, _ := strings.Cut(name, ".")
		found := document.Components.Schemas[schema].Value
		if property != "" {
			found = found.Properties[property].Value
		}
		for _, value := range found.Enum {
			all[fmt.Sprintf("%s=%v", name, value)] = true
		}
	}
	return all
}

// source is a function or a variable of a package of tests: the strings in it, and the
// others of its package that it names.
type source struct {
	pkg   map[string]*source
	texts []string
	names map[string]bool
}

// says tells whether a function, or what it names of its package, has a word in a string.
func (s *source) says(word string) bool {
	found := regexp.MustCompile(`(?i)(^|[^a-z0-9_-])` + regexp.QuoteMeta(word) + `($|[^a-z0-9_-])`)
	seen := make(map[*source]bool)
	var visit func(s *source) bool
	visit = func(s *source) bool {
		if seen[s] {
			return false
		}
		seen[s] = true
		if slices.ContainsFunc(s.texts, found.MatchString) {
			return true
		}
		for name := range s.names {
			if other := s.pkg[name]; other != nil && visit(other) {
				return true
			}
		}
		return false
	}
	return visit(s)
}

// indexTests reads the tests of all packages, by package and name.
func indexTests(t *testing.T) map[string]*source {
	t.Helper()
	packages := make(map[string]map[string]*source) // by folder and name
	all := make(map[string]*source)
	set := token.NewFileSet()
	for _, path := range files(t, "_test.go") {
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		place := filepath.Dir(path) + " " + file.Name.Name
		if packages[place] == nil {
			packages[place] = make(map[string]*source)
		}
		for name, node := range declared(file) {
			s := sourceOf(node)
			s.pkg = packages[place]
			packages[place][name] = s
			if strings.HasPrefix(name, "Test") {
				all[strings.TrimSuffix(file.Name.Name, "_test")+"."+name] = s
			}
		}
	}
	return all
}

// declared returns the functions, methods, variables and constants of a file by name.
func declared(file *ast.File) map[string]ast.Node {
	found := make(map[string]ast.Node)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			found[d.Name.Name] = d
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						found[name.Name] = spec
					}
				case *ast.TypeSpec:
					found[spec.Name.Name] = spec
				}
			}
		}
	}
	return found
}

func sourceOf(node ast.Node) *source {
	s := &source{names: make(map[string]bool)}
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				s.texts = append(s.texts, cmp.Or(text, n.Value))
			}
		case *ast.Ident:
			s.names[n.Name] = true
		}
		return true
	})
	return s
}
