package stripesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// contract is Stripe's OpenAPI document, as the pinned stripe-mock embeds it. Every
// request and every answer of this package's tests is held against it.
type contract struct {
	compiler *jsonschema.Compiler
	paths    map[string]string // by path with {} for every id

	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
}

// stripeContract is read once.
var stripeContract = sync.OnceValues(func() (*contract, error) {
	_ = os.Getenv("TRIPRIZE_TEST_RUN") // Go's cache of results does not see what a command reads
	raw, err := exec.Command("go", "mod", "download", "-modfile=../../tools/go.mod", "-json", "github.com/stripe/stripe-mock").Output()
	if err != nil {
		return nil, fmt.Errorf("stripe-mock cannot be had: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(raw, &module); err != nil {
		return nil, err
	}
	file, err := os.Open(filepath.Join(module.Dir, "embedded", "openapi", "spec3.json"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	document, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		return nil, err
	}
	c := &contract{compiler: jsonschema.NewCompiler(), compiled: make(map[string]*jsonschema.Schema), paths: make(map[string]string)}
	whole, _ := strict(document).(map[string]any)
	paths, _ := whole["paths"].(map[string]any)
	for template := range paths {
		c.paths[placeholder.ReplaceAllString(template, "{}")] = template
	}
	return c, c.compiler.AddResource("stripe.json", whole)
})

// strict makes JSON Schema of the schemas of OpenAPI 3.0: nullable becomes a type, and an
// object with named fields has no others.
func strict(node any) any {
	switch n := node.(type) {
	case []any:
		for i := range n {
			n[i] = strict(n[i])
		}
	case map[string]any:
		for name := range n {
			n[name] = strict(n[name])
		}
		fields, isObject := n["properties"].(map[string]any)
		if _, open := n["additionalProperties"]; isObject && len(fields) > 0 && !open && n["type"] == "object" {
			n["additionalProperties"] = false
		}
		if n["nullable"] == true {
			delete(n, "nullable")
			return map[string]any{"anyOf": []any{map[string]any{"type": "null"}, n}}
		}
	}
	return node
}

// check holds a value against the schema at a place of the document.
func (c *contract) check(value any, path ...string) error {
	var pointer strings.Builder
	for _, name := range path {
		pointer.WriteString("/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	place := pointer.String()
	schema := c.compiled[place]
	if schema == nil {
		var err error
		if schema, err = c.compiler.Compile("stripe.json#" + place); err != nil {
			return err
		}
		c.compiled[place] = schema
	}
	return schema.Validate(value)
}

// object holds an object against the schema that its field object names.
func (c *contract) object(value any) error {
	m, _ := value.(map[string]any)
	name, _ := m["object"].(string)
	return c.check(value, "components", "schemas", name)
}

var (
	pathID      = regexp.MustCompile(`/(pi|ch|re|du|evt)_[A-Za-z0-9_]+`)
	placeholder = regexp.MustCompile(`\{[a-z_]+\}`)
)

// answer holds the answer to a request against the contract.
func (c *contract) answer(method, path string, status int, body []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return c.check(value, "components", "schemas", "error")
	}
	path, _, _ = strings.Cut(path, "?")
	template := c.paths[pathID.ReplaceAllString(path, "/{}")] // an operation that is not there has no schema
	if err := c.check(value, "paths", template, strings.ToLower(method), "responses", "200", "content", "application/json", "schema"); err != nil {
		return err
	}
	return c.events(value)
}

// webhook holds the payload of a webhook against the contract.
func (c *contract) webhook(payload []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return err
	}
	return errors.Join(c.object(value), c.events(value))
}

// events holds the objects in events against their schemas, too.
func (c *contract) events(value any) error {
	m, _ := value.(map[string]any)
	if list, ok := m["data"].([]any); ok {
		for _, one := range list {
			if err := c.events(one); err != nil {
				return err
			}
		}
	}
	if data, ok := m["data"].(map[string]any); ok && m["object"] == "event" {
		return c.object(data["object"])
	}
	return nil
}

func TestAnObjectThatIsNotStripesIsFound(t *testing.T) {
	c, err := stripeContract()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(object){
		"":                  func(object) {},
		"a field too many":  func(o object) { o["colour"] = "red" },
		"a status":          func(o object) { o["status"] = "paid" },
		"a type":            func(o object) { o["amount"] = "500" },
		"a missing field":   func(o object) { delete(o, "created") },
		"null":              func(o object) { o["amount"] = nil },
		"a field far below": func(o object) { o["payment_method_options"] = object{"card": object{"colour": "red"}} },
	} {
		rendered := (&intent{head: head{ID: "pi_1"}, Status: requiresMethod, Currency: "jpy", Capture: "automatic", Types: []string{"card"}}).render(0)
		change(rendered)
		if err := c.webhook(must(json.Marshal(rendered))); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAWholeLifeOfEveryObjectIsStripes(t *testing.T) {
	s := open(t, Settings{})
	for _, method := range Methods() {
		m := table[method]
		if m.fault == timeoutAfterCharge {
			continue
		}
		s.do("create " + method)
		for range 4 {
			if got := s.do("confirm"); !strings.HasPrefix(got, "4") && !strings.HasPrefix(got, "500") {
				break
			}
		}
		switch got, _, _ := strings.Cut(s.do("fetch"), " "); got {
		case "requires_action":
			s.do("authenticate true")
		case "processing":
			s.do("finish true")
		}
		s.do("capture")
		if got := s.do("fetch"); strings.HasPrefix(got, "succeeded") {
			if got := s.do("refund amount=10"); strings.HasPrefix(got, "4") {
				t.Errorf("%s: %s", method, got)
			}
			s.do("advance 2h")
		} else if m.decline == nil {
			t.Errorf("%s ends as %s", method, got)
		}
	}
	for _, path := range []string{
		"/v1/payment_intents?limit=100&expand[]=data.latest_charge", "/v1/charges?limit=100&expand[]=data.payment_intent", "/v1/account",
		"/v1/refunds?limit=100&expand[]=data.charge&expand[]=data.payment_intent.latest_charge", "/v1/disputes?limit=100&expand[]=data.charge",
	} {
		if status, _, body := s.raw(http.MethodGet, path, ""); status != 200 || path != "/v1/account" && len(body["data"].([]any)) == 0 {
			t.Errorf("%s: %d", path, status)
		}
	}
	if len(s.listed("/v1/events?limit=2")) < 100 {
		t.Error("there are few events")
	}
}
