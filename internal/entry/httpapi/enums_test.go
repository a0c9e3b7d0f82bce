package httpapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"triprize/api"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/webhook"
	"triprize/migrations"
)

// enumOf returns the values that a schema of the contract has, or a property of it, sorted.
func enumOf(t *testing.T, schema string) (values []string) {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	schema, property, _ := strings.Cut(schema, ".")
	found := document.Components.Schemas[schema].Value
	if property != "" {
		found = found.Properties[property].Value
	}
	for _, value := range found.Enum {
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

// constantsOf returns the values of the constants of a package that match, sorted.
func constantsOf(t *testing.T, dir string, match func(name string, kind ast.Expr) bool) (values []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) == 0 || !match(spec.Names[0].Name, spec.Type) {
				return true
			}
			if text, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
			return true
		})
	}
	slices.Sort(values)
	return values
}

// ofType matches constants of a type.
func ofType(name string) func(string, ast.Expr) bool {
	return func(_ string, kind ast.Expr) bool {
		named, ok := kind.(*ast.Ident)
		return ok && named.Name == name
	}
}

// The steps of payments are constants without a type, whose names begin with Step; the others are
// those of the purchase itself.
func TestTheTypesOfTheTimelineAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	steps := constantsOf(t, "payment", func(name string, _ ast.Expr) bool { return strings.HasPrefix(name, "Step") })
	types := append([]string{"created", "completed", "cancelled", "partially-cancelled"}, steps...)
	slices.Sort(types)
	if promised := enumOf(t, "TimelineEntry.event"); !slices.Equal(types, promised) {
		t.Errorf("the program has %v, the contract %v", types, promised)
	}
}

func TestTheTypesOfWebhooksAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	types := slices.Sorted(slices.Values(webhook.Types))
	if promised := enumOf(t, "WebhookEventType"); !slices.Equal(types, promised) {
		t.Errorf("the program has %v, the contract %v", types, promised)
	}
	for _, filter := range enumOf(t, "WebhookFilter") { // a type, a family with a star, or all; a test goes to its endpoint anyway
		family, isFamily := strings.CutSuffix(filter, "*")
		matches := func(one string) bool { return one == filter || isFamily && strings.HasPrefix(one, family) }
		if filter == webhook.EndpointTest || !slices.ContainsFunc(webhook.Types, matches) {
			t.Errorf("the contract has the filter %s, which selects nothing", filter)
		}
	}
}

func TestTheKindsOfTheContractAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	kinds := slices.DeleteFunc(constantsOf(t, "job", ofType("Kind")), func(kind string) bool { // tasks, of which there are no jobs
		return slices.Contains([]job.Kind{job.KindPayment, job.KindRefund, job.KindEvent}, job.Kind(kind))
	})
	if promised := enumOf(t, "JobKind"); !slices.Equal(kinds, promised) {
		t.Errorf("the program has %v, the contract %v", kinds, promised)
	}
}

// A reason of a refund that the program has and the schema refuses would stop every refund with it.
func TestTheReasonsOfRefundsAreThoseOfTheContractAndTheSchema(t *testing.T) {
	t.Parallel()
	reasons := constantsOf(t, "payment", ofType("RefundReason"))
	if promised := enumOf(t, "RefundReason"); !slices.Equal(reasons, promised) {
		t.Errorf("the program has %v, the contract %v", reasons, promised)
	}
	schema, err := migrations.Files.ReadFile("00105_payments.sql")
	if err != nil {
		t.Fatal(err)
	}
	allowed := regexp.MustCompile(`reason\s+text\s+NOT NULL CHECK \(reason IN \('(.*)'\)\)`).FindSubmatch(schema)
	if allowed == nil {
		t.Fatal("the schema does not say which reasons a refund may have")
	}
	stored := strings.Split(string(allowed[1]), "', '")
	slices.Sort(stored)
	if !slices.Equal(reasons, stored) {
		t.Errorf("the program has %v, the schema %v", reasons, stored)
	}
}
