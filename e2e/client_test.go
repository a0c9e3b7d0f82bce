package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"triprize/internal/domain/fault"
)

// The client is a module of its own and does not know the server's code, so its constants,
// which are generated from the contract, are held against the server's catalogue here.
func TestEveryCodeHasAConstantInTheClient(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "../client/api.gen.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var constants, catalogue []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			value, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			constants = append(constants, value)
		}
		return true
	})
	for _, c := range fault.Codes() {
		catalogue = append(catalogue, string(c))
	}
	slices.Sort(constants)
	slices.Sort(catalogue)
	if !slices.Equal(constants, catalogue) {
		t.Errorf("constants %v\ncatalogue %v", constants, catalogue)
	}
}
