package internal_test

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"
)

const (
	root   = ".."
	module = "triprize"
)

// sourcePackage is one package of the repository. External tests are packages of
// their own.
type sourcePackage struct {
	dir     string // from the root, with slashes
	files   []*ast.File
	symbols map[string]bool // "Name", and "Type.Name" for methods and fields
}

// source is all Go code of the repository.
type source struct {
	files    *token.FileSet
	packages []*sourcePackage
	words    map[string]bool // every identifier that is declared or used
}

var tree = sync.OnceValues(loadTree)

func loadTree() (*source, error) {
	s := &source{files: token.NewFileSet(), words: make(map[string]bool)}
	byName := make(map[string]*sourcePackage)
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && file != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(file) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(s.files, file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		key := dir + " " + parsed.Name.Name
		if byName[key] == nil {
			byName[key] = &sourcePackage{dir: filepath.ToSlash(dir), symbols: make(map[string]bool)}
			s.packages = append(s.packages, byName[key])
		}
		byName[key].files = append(byName[key].files, parsed)
		byName[key].declare(parsed)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				s.words[id.Name] = true
			}
			return true
		})
		return nil
	})
	return s, err
}

// declare adds the names that a file declares.
func (p *sourcePackage) declare(file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				p.symbols[d.Name.Name] = true
			} else {
				p.symbols[typeName(d.Recv.List[0].Type)+"."+d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						p.symbols[name.Name] = true
					}
				case *ast.TypeSpec:
					p.declareType(s)
				}
			}
		}
	}
}

func (p *sourcePackage) declareType(s *ast.TypeSpec) {
	p.symbols[s.Name.Name] = true
	var members *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		members = t.Fields
	case *ast.InterfaceType:
		members = t.Methods
	default:
		return
	}
	for _, field := range members.List {
		for _, name := range field.Names {
			p.symbols[s.Name.Name+"."+name.Name] = true
		}
		if len(field.Names) == 0 {
			p.symbols[s.Name.Name+"."+typeName(field.Type)] = true
		}
	}
}

// typeName returns the name of a receiver's or an embedded type.
func typeName(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.IndexListExpr:
		return typeName(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// docComment is one doc comment and where it is.
type docComment struct {
	in        *sourcePackage
	file      *ast.File
	group     *ast.CommentGroup
	ofPackage bool
}

// docComments returns the doc comments of all code that is not generated: of
// packages, declarations, and the members of types.
func (s *source) docComments() (all []docComment) {
	for _, p := range s.packages {
		for _, file := range p.files {
			if ast.IsGenerated(file) {
				continue
			}
			add := func(groups ...*ast.CommentGroup) {
				for _, g := range groups {
					if g != nil {
						all = append(all, docComment{p, file, g, g == file.Doc})
					}
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.File:
					add(n.Doc)
				case *ast.GenDecl:
					add(n.Doc)
				case *ast.FuncDecl:
					add(n.Doc)
				case *ast.TypeSpec:
					add(n.Doc, n.Comment)
				case *ast.ValueSpec:
					add(n.Doc, n.Comment)
				case *ast.Field:
					add(n.Doc, n.Comment)
				}
				return true
			})
		}
	}
	return all
}

// forEachDoc fails the test with everything that wrong returns for a doc comment.
func forEachDoc(t *testing.T, wrong func(s *source, d docComment) []string) {
	t.Helper()
	s, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	docs := s.docComments()
	if len(docs) < 1000 {
		t.Fatalf("%d doc comments were found: where is the code?", len(docs))
	}
	for _, d := range docs {
		for _, fault := range wrong(s, d) {
			t.Errorf("%s: %s", s.files.Position(d.group.Pos()), fault)
		}
	}
}

// TestDocLinks: the name in the square brackets of a doc link exists, in this package
// or in the one before the dot. Names in packages of others are not checked.
func TestDocLinks(t *testing.T) {
	t.Parallel()
	forEachDoc(t, func(s *source, d docComment) (wrong []string) {
		imports := d.imports()
		p := comment.Parser{
			LookupPackage: func(name string) (string, bool) {
				importPath, ok := imports[name]
				if !ok {
					importPath, ok = comment.DefaultLookupPackage(name)
				}
				if !ok { // a name after it decides whether it is meant as a link
					importPath = notImported + name
				}
				return importPath, true
			},
			LookupSym: func(recv, name string) bool {
				ok := recv == "" && d.in.symbols[name] || recv != "" && d.in.symbols[recv+"."+name]
				if !ok {
					wrong = append(wrong, fmt.Sprintf("[%s] is not declared in this package", strings.TrimPrefix(recv+"."+name, ".")))
				}
				return ok
			},
		}
		for _, link := range linksOf(p.Parse(d.group.Text())) {
			name := strings.TrimPrefix(link.Recv+"."+link.Name, ".")
			if link.ImportPath != "" && link.Name != "" && !s.declares(link.ImportPath, name) {
				wrong = append(wrong, fmt.Sprintf("%s is not declared in %s", name, link.ImportPath))
			}
		}
		return wrong
	})
}

// imports returns the import paths of a comment's file by the names they have there.
func (d docComment) imports() map[string]string {
	found := make(map[string]string)
	for _, i := range d.file.Imports {
		importPath, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(importPath)
		if i.Name != nil {
			name = i.Name.Name
		}
		found[name] = importPath
	}
	return found
}

// notImported marks the path of a package that a file does not import.
const notImported = "a package that is not imported here: "

// declares reports whether a package has a name. Packages of others have every name.
func (s *source) declares(importPath, name string) bool {
	dir, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return !strings.HasPrefix(importPath, notImported)
	}
	return slices.ContainsFunc(s.packages, func(p *sourcePackage) bool { return p.dir == dir && p.symbols[name] })
}

// linksOf returns the doc links in a comment, outside of its code blocks.
func linksOf(d *comment.Doc) (links []*comment.DocLink) {
	var ofTexts func(texts []comment.Text)
	ofTexts = func(texts []comment.Text) {
		for _, text := range texts {
			switch t := text.(type) {
			case *comment.DocLink:
				links = append(links, t)
			case *comment.Link:
				ofTexts(t.Text)
			}
		}
	}
	var ofBlocks func(blocks []comment.Block)
	ofBlocks = func(blocks []comment.Block) {
		for _, block := range blocks {
			switch b := block.(type) {
			case *comment.Paragraph:
				ofTexts(b.Text)
			case *comment.Heading:
				ofTexts(b.Text)
			case *comment.List:
				for _, item := range b.Items {
					ofBlocks(item.Content)
				}
			}
		}
	}
	ofBlocks(d.Content)
	return links
}

var (
	fileName    = regexp.MustCompile(`[\w./-]*\w\.(?:go|md|yaml|sql)\b`)
	codeLine    = regexp.MustCompile(`(?m)^[\t ].*$`)
	inDiagram   = regexp.MustCompile(`(?m)^\t.*\[([A-Z]\w*)\]`)
	qualified   = regexp.MustCompile(`(?:^|[^\w./-])([a-z]\w*)\.([A-Z]\w*)`)
	backquoted  = regexp.MustCompile("`([A-Z]\\w*)`")
	camelCase   = regexp.MustCompile(`\b\w*[a-z0-9][A-Z]\w*\b`)
	properNames = []string{"PostgreSQL", "OpenAPI", "GitHub", "JavaScript", "EdDSA", "OpenTelemetry"}
)

// TestDocsNameFilesThatExist: a file that a doc comment names is in the folder of the
// package or has this path from the root.
func TestDocsNameFilesThatExist(t *testing.T) {
	t.Parallel()
	forEachDoc(t, func(_ *source, d docComment) (wrong []string) {
		for _, name := range fileName.FindAllString(d.group.Text(), -1) {
			_, here := os.Stat(filepath.Join(root, d.in.dir, name))
			_, there := os.Stat(filepath.Join(root, name))
			if here != nil && there != nil {
				wrong = append(wrong, fmt.Sprintf("there is no file %s", name))
			}
		}
		return wrong
	})
}

// TestPackageDocsNameIdentifiersThatExist: words in package docs that look like
// identifiers are identifiers: words with a capital inside, words in backquotes, names
// after a package and a dot, and names in square brackets in diagrams.
func TestPackageDocsNameIdentifiersThatExist(t *testing.T) {
	t.Parallel()
	forEachDoc(t, func(s *source, d docComment) (wrong []string) {
		if !d.ofPackage {
			return nil
		}
		text := d.group.Text()
		for _, m := range qualified.FindAllStringSubmatch(codeLine.ReplaceAllString(text, ""), -1) {
			if !s.knows(m[1], m[2]) {
				wrong = append(wrong, fmt.Sprintf("%s.%s is not declared", m[1], m[2]))
			}
		}
		for _, m := range inDiagram.FindAllStringSubmatch(text, -1) {
			if !d.in.symbols[m[1]] {
				wrong = append(wrong, fmt.Sprintf("[%s] is not declared in this package", m[1]))
			}
		}
		words := camelCase.FindAllString(text, -1)
		for _, m := range backquoted.FindAllStringSubmatch(text, -1) {
			words = append(words, m[1])
		}
		for _, w := range words {
			if shout := strings.IndexFunc(w, unicode.IsLower) < 0; !shout && !s.words[w] && !slices.Contains(properNames, w) {
				wrong = append(wrong, fmt.Sprintf("%s is no identifier of this repository", w))
			}
		}
		return wrong
	})
}

// knows reports whether a package with this name has the symbol. A package that is not
// in the repository has every symbol.
func (s *source) knows(packageName, symbol string) bool {
	ours := false
	for _, p := range s.packages {
		if p.files[0].Name.Name == packageName {
			if ours = true; p.symbols[symbol] {
				return true
			}
		}
	}
	return !ours
}

// private are words that once named parts of this code and that only we understood.
var private = []string{"teller", "launch", "pages", "holding", "board", "shelf", "till", "aftermath", "suspects", "singly",
	"tally", "turnstile", "desk", "standing", "glance", "scene"}

// TestPathsUseStandardWords: no file or folder under internal has a private word in its
// name.
func TestPathsUseStandardWords(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		for _, word := range strings.FieldsFunc(filepath.Base(file), func(r rune) bool { return strings.ContainsRune("_-.", r) }) {
			if slices.Contains(private, strings.ToLower(word)) {
				t.Errorf("internal/%s: %q is a private word", filepath.ToSlash(file), word)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
