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

// constantsOf returns the values of the constants of a package that match: by their type, or with a prefix.
func constantsOf(t *testing.T, dir, kind, prefix string) (values []string) {
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
			if !ok || len(spec.Values) == 0 {
				return true
			}
			named, _ := spec.Type.(*ast.Ident)
			text, isText := spec.Values[0].(*ast.BasicLit)
			if isText && (kind != "" && named != nil && named.Name == kind || prefix != "" && strings.HasPrefix(spec.Names[0].Name, prefix)) {
				value, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
			return true
		})
	}
	return values
}

// A reason of a refund that the program has and the schema refuses would stop every refund with it.
func TestTheValuesOfTheContractAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	var codes []string
	for _, code := range fault.Codes() {
		codes = append(codes, string(code))
	}
	kinds := slices.DeleteFunc(constantsOf(t, "job", "Kind", ""), func(kind string) bool { // tasks, of which there are no jobs
		return slices.Contains([]job.Kind{job.KindPayment, job.KindRefund, job.KindEvent}, job.Kind(kind))
	})
	schema, err := migrations.Files.ReadFile("00105_payments.sql")
	if err != nil {
		t.Fatal(err)
	}
	allowed := regexp.MustCompile(`reason\s+text\s+NOT NULL CHECK \(reason IN \('(.*)'\)\)`).FindSubmatch(schema)
	if allowed == nil {
		t.Fatal("the schema does not say which reasons a refund may have")
	}
	reasons := constantsOf(t, "payment", "RefundReason", "")
	for name, values := range map[string][]string{
		"ProblemCode": codes, "WebhookEventType": slices.Clone(webhook.Types), "JobKind": kinds, "RefundReason": reasons,
		// Those of the purchase itself, and of the steps of its payment.
		"TimelineEntry.event": append([]string{"created", "completed", "cancelled", "partially-cancelled"}, constantsOf(t, "payment", "", "Step")...),
	} {
		if slices.Sort(values); !slices.Equal(values, enumOf(t, name)) {
			t.Errorf("%s: the program has %v, the contract %v", name, values, enumOf(t, name))
		}
	}
	if stored := slices.Sorted(slices.Values(strings.Split(string(allowed[1]), "', '"))); !slices.Equal(reasons, stored) {
		t.Errorf("the program has the reasons %v, the schema %v", reasons, stored)
	}
	for _, filter := range enumOf(t, "WebhookFilter") { // a type, a family with a star, or all; a test goes to its endpoint anyway
		family, isFamily := strings.CutSuffix(filter, "*")
		matches := func(one string) bool { return one == filter || isFamily && strings.HasPrefix(one, family) }
		if filter == webhook.EndpointTest || !slices.ContainsFunc(webhook.Types, matches) {
			t.Errorf("the contract has the filter %s, which selects nothing", filter)
		}
	}
}
