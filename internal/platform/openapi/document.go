package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Document is an OpenAPI document, ready to check requests.
type Document struct {
	JSON       []byte // the document as it is served: see Public
	Operations []Operation
}

// Operation is one operation of the API: a method on a path.
type Operation struct {
	ID           string
	Method       string
	Path         string   // as OpenAPI writes it: /v1/jobs/{job}
	Roles        []string // who may call it; empty: anybody, without authentication
	Open         bool     // without a credential too: security has {}
	HasBody      bool
	BodyOptional bool // the body may be left out; it is then {}
	MaxBody      int  // the most bytes of the body (x-max-body-bytes)
	NeedsKey     bool // an Idempotency-Key is required

	body       *jsonschema.Schema
	shells     map[*jsonschema.Schema]*jsonschema.Schema // of the body
	parameters []parameter
	patterns   map[string]string
}

type parameter struct {
	name, in string
	required bool
	integer  bool
	boolean  bool
	schema   *jsonschema.Schema
}

// address is the document's name in the schema compiler; nothing is fetched from it.
const address = "file:///openapi.json"

var methods = []string{"get", "post", "put", "patch", "delete"}

// node is an object of the document.
type node = map[string]any

// Load reads an OpenAPI 3.1 document in YAML. patterns has sentences for regular
// expressions in its schemas: the error for a value that does not match. Without
// one the error repeats the expression.
func Load(source []byte, patterns map[string]string) (*Document, error) {
	var root node
	if err := yaml.Unmarshal(source, &root); err != nil {
		return nil, fmt.Errorf("openapi.Load: %w", err)
	}
	text, err := json.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("openapi.Load: %w", err)
	}
	plain, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("openapi.Load: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.RegisterFormat(&jsonschema.Format{Name: "date-time", Validate: readableTime})
	if err := compiler.AddResource(address, plain); err != nil {
		return nil, fmt.Errorf("openapi.Load: %w", err)
	}
	public, err := Public(source)
	if err != nil {
		return nil, err
	}
	r := reader{root: root, compiler: compiler, patterns: patterns}
	d := &Document{JSON: public}
	for path, item := range child(root, "paths") {
		item, _ := item.(node)
		for _, method := range methods {
			if operation, ok := item[method].(node); ok {
				o, err := r.operation(path, method, item, operation)
				if err != nil {
					return nil, fmt.Errorf("openapi.Load: %s %s: %w", method, path, err)
				}
				d.Operations = append(d.Operations, o)
			}
		}
	}
	slices.SortFunc(d.Operations, func(a, b Operation) int { return strings.Compare(a.ID, b.ID) })
	return d, nil
}

// dateTime is RFC 3339 without what time.Time cannot read: leap seconds, and a
// lower-case t and z.
var dateTime = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)

func readableTime(value any) error {
	text, ok := value.(string)
	switch {
	case !ok:
		return nil
	case !dateTime.MatchString(text):
		return errors.New("not a time")
	}
	return new(time.Time).UnmarshalText([]byte(text))
}

// reader reads operations and resolves their references.
type reader struct {
	root     node
	compiler *jsonschema.Compiler
	patterns map[string]string
}

func (r reader) operation(path, method string, item, operation node) (Operation, error) {
	id, _ := operation["operationId"].(string)
	o := Operation{ID: id, Method: strings.ToUpper(method), Path: path, patterns: r.patterns}
	roles, _ := operation["x-roles"].([]any)
	for _, role := range roles {
		name, _ := role.(string)
		o.Roles = append(o.Roles, name)
	}
	security, _ := operation["security"].([]any)
	for _, scheme := range security {
		needs, ok := scheme.(node)
		o.Open = o.Open || ok && len(needs) == 0
	}
	base := "/paths/" + escape(path)
	for _, place := range []struct {
		pointer string
		list    any
	}{{base + "/parameters", item["parameters"]}, {base + "/" + method + "/parameters", operation["parameters"]}} {
		list, _ := place.list.([]any)
		for i, raw := range list {
			p, err := r.parameter(fmt.Sprintf("%s/%d", place.pointer, i), raw)
			if err != nil {
				return o, err
			}
			o.parameters = append(o.parameters, p)
			o.NeedsKey = o.NeedsKey || p.name == "Idempotency-Key"
		}
	}
	if _, o.HasBody = operation["requestBody"]; !o.HasBody {
		return o, nil
	}
	required, _ := child(operation, "requestBody")["required"].(bool)
	o.BodyOptional = !required
	if o.MaxBody, _ = operation["x-max-body-bytes"].(int); o.MaxBody < 1 {
		return o, errors.New("an operation with a body needs x-max-body-bytes")
	}
	var err error
	o.body, err = r.compiler.Compile(address + "#" + base + "/" + method + "/requestBody/content/application~1json/schema")
	o.shells = shellsOf(o.body)
	return o, err
}

func (r reader) parameter(pointer string, raw any) (p parameter, err error) {
	described, _ := raw.(node)
	if reference, ok := described["$ref"].(string); ok {
		pointer = strings.TrimPrefix(reference, "#")
		described = child(child(child(r.root, "components"), "parameters"), reference[strings.LastIndex(reference, "/")+1:])
	}
	p.name, _ = described["name"].(string)
	p.in, _ = described["in"].(string)
	p.required, _ = described["required"].(bool)
	p.integer = child(described, "schema")["type"] == "integer"
	p.boolean = child(described, "schema")["type"] == "boolean"
	p.schema, err = r.compiler.Compile(address + "#" + pointer + "/schema")
	return p, err
}

func child(n node, name string) node {
	c, _ := n[name].(node)
	return c
}

// escape writes a name as a part of a JSON pointer in a URL.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}
