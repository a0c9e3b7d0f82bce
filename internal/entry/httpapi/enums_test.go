package httpapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"triprize/api"
	"triprize/internal/domain/fault"
	"triprize/internal/store/job"
)

// enumOf returns the values that a schema of the contract has, sorted.
func enumOf(t *testing.T, schema string) (values []string) {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range document.Components.Schemas[schema].Value.Enum {
		values = append(values, value.(string))
	}
	slices.Sort(values)
	return values
}

func TestTheCodesOfTheContractAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	var codes []string
	for _, code := range fault.Codes() {
		codes = append(codes, string(code))
	}
	slices.Sort(codes)
	if promised := enumOf(t, "ProblemCode"); !slices.Equal(codes, promised) {
		t.Errorf("the program has %v, the contract %v", codes, promised)
	}
}

func TestTheKindsOfTheContractAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "../../store/job/job.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil {
			return true
		}
		if named, ok := spec.Type.(*ast.Ident); ok && named.Name == "Kind" {
			kind, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, kind)
		}
		return true
	})
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { // tasks, of which there are no jobs
		return slices.Contains([]job.Kind{job.KindPayment, job.KindRefund, job.KindEvent}, job.Kind(kind))
	})
	slices.Sort(kinds)
	if promised := enumOf(t, "JobKind"); !slices.Equal(kinds, promised) {
		t.Errorf("the program has %v, the contract %v", kinds, promised)
	}
}
