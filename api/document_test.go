package api

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// parsed is the document as another library reads it.
func parsed(t *testing.T) *openapi3.T {
	t.Helper()
	d, err := openapi3.NewLoader().LoadFromData(OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// absolute returns a path of the repository.
func absolute(t *testing.T, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{".."}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheDocumentIsValidAndSoAreItsExamples(t *testing.T) {
	t.Parallel()
	if err := parsed(t).Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation(),
		openapi3.EnableSchemaPatternValidation(), openapi3.EnableMultiError()); err != nil {
		t.Error(err)
	}
}

// The guard relies on roles and keys, readers of the reference on the rest. The linter has ids, tags and much more.
func TestEveryOperationSaysWhatItIsAndWhoItIsFor(t *testing.T) {
	t.Parallel()
	for path, item := range parsed(t).Paths.Map() {
		if len(item.Parameters) > 0 {
			t.Errorf("%s has parameters of its own: Swagger UI shows only those of operations", path)
		}
		for method, o := range item.Operations() {
			name := method + " " + path
			if o.Summary == "" || strings.HasSuffix(o.Summary, ".") {
				t.Errorf("%s has the summary %q", name, o.Summary)
			}
			if text := strings.TrimSpace(o.Description); !strings.HasSuffix(text, ".") {
				t.Errorf("%s has the description %q: whole sentences, please", name, text)
			}
			checkRoles(t, name, o)
			checkParameters(t, name, method, o.Parameters)
			checkBody(t, name, o)
			for status, r := range o.Responses.Map() {
				if r.Value.Description == nil || *r.Value.Description == "" || *r.Value.Description == o.Summary+"." {
					t.Errorf("%s: what the answer %s is stays unsaid", name, status)
				}
			}
		}
	}
}

func checkRoles(t *testing.T, name string, o *openapi3.Operation) {
	t.Helper()
	open := o.Security != nil && len(*o.Security) == 0
	roles, _ := o.Extensions["x-roles"].([]any)
	if open == (len(roles) > 0) {
		t.Errorf("%s: x-roles or security: [], either of the two; x-roles %v", name, roles)
	}
	for _, role := range roles {
		if !slices.Contains([]any{"operator", "app", "user", "viewer", "public", "approver"}, role) {
			t.Errorf("%s is for %v, which is no role", name, role)
		}
	}
	for _, status := range []int{401, 403} {
		if known := o.Responses.Status(status) != nil; known == open {
			t.Errorf("%s has roles %v; answers %d: %t", name, roles, status, known)
		}
	}
}

// harmless are the POSTs that do the same once or twice.
var harmless = map[string]bool{"POST /v1/sweeps/{sweep}": true, "POST /v1/keys/{prefix}/revoke": true, "POST /webhooks/stripe": true, // an event is stored once by its id
	"POST /v1/campaigns/{campaign}/draw/round": true} // a round has one signature

func checkParameters(t *testing.T, name, method string, parameters openapi3.Parameters) {
	t.Helper()
	if keyed := parameters.GetByInAndName("header", "Idempotency-Key") != nil; keyed != (method == "POST" && !harmless[name]) {
		t.Errorf("%s: a POST needs an Idempotency-Key unless it is harmless to repeat; nothing else does", name)
	}
	for _, p := range parameters {
		if p.Value.Description == "" || p.Value.Schema == nil {
			t.Errorf("%s: parameter %s: what it is stays unsaid", name, p.Value.Name)
		}
	}
}

func checkBody(t *testing.T, name string, o *openapi3.Operation) {
	t.Helper()
	if o.RequestBody == nil {
		return
	}
	body := o.RequestBody.Value
	if media := slices.Collect(maps.Keys(body.Content)); len(media) != 1 || media[0] != "application/json" {
		t.Errorf("%s: a body is JSON, not %v", name, media)
	} else if schema := body.Content["application/json"].Schema.Value; !body.Required && len(schema.Required)+int(schema.MinProps) > 0 {
		t.Errorf("%s: its body may be left out, and {} does not do", name)
	} else if len(body.Content["application/json"].Examples) == 0 {
		t.Errorf("%s: its body has no example", name)
	}
	for _, status := range []int{400, 413, 415} {
		if o.Responses.Status(status) == nil {
			t.Errorf("%s has a body and does not say that it answers %d", name, status)
		}
	}
}

// A program that can read one list can read every list.
func TestListsAreNamedAsTheirPathsAre(t *testing.T) {
	t.Parallel()
	lists := 0
	for path, item := range parsed(t).Paths.Map() {
		if item.Get == nil || item.Get.Parameters.GetByInAndName("query", "cursor") == nil {
			continue
		}
		lists++
		page := item.Get.Responses.Status(200).Value.Content["application/json"].Schema.Value.Properties
		name := strings.ReplaceAll(path[strings.LastIndex(path, "/")+1:], "-", "_")
		if len(page) != 2 || page[name] == nil || !page[name].Value.Type.Is("array") || !slices.Equal(page["next_cursor"].Value.Type.Slice(), []string{"string", "null"}) {
			t.Errorf("%s has %v: the array %s and next_cursor, a text or null, please", path, slices.Sorted(maps.Keys(page)), name)
		}
	}
	if lists < 12 {
		t.Errorf("only %d lists are found", lists)
	}
}
