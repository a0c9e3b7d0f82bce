package openapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
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
	Roles        []string // that may call it; empty: anybody, without authentication
	Open         bool     // without a credential too: security has {}
	HasBody      bool
	BodyOptional bool // the body may be left out; it is then {}
	MaxBody      int  // the most bytes of the body (x-max-body-bytes)
	NeedsKey     bool // an Idempotency-Key is required

	body       *jsonschema.Schema
	reading    *reading                                  // of the body; nil: its bodies are not plain
	shells     map[*jsonschema.Schema]*jsonschema.Schema // of the body
	parameters []parameter
	patterns   map[string]string

	query          []string // its parameters in the query
	headers        []header // of all operations
	ignoresVersion bool     // it changes something, and does not take an If-Match
}

type parameter struct {
	name, in string
	required bool
	integer  bool
	boolean  bool
	schema   *jsonschema.Schema
	reading  *reading
}

// address is the document's name in the schema compiler; nothing is fetched from it.
const address = "file:///openapi.json"

// source is what is read of a document beside its schemas.
type source struct {
	Paths map[string]struct {
		Parameters []parameterSource
		Operations map[string]operationSource `yaml:",inline"` // by method
	}
	Components struct{ Parameters map[string]parameterSource }
}

type operationSource struct {
	ID          string   `yaml:"operationId"`
	Roles       []string `yaml:"x-roles"`
	Security    []map[string]any
	Parameters  []parameterSource
	RequestBody *struct{ Required bool } `yaml:"requestBody"`
	MaxBody     int                      `yaml:"x-max-body-bytes"`
}

type parameterSource struct {
	Ref      string `yaml:"$ref"`
	Name, In string
	Required bool
	Schema   struct{ Type any }
}

// Load reads an OpenAPI 3.1 document in YAML. patterns has sentences for regular
// expressions in its schemas: the error for a value that does not match. Without
// one the error repeats the expression.
func Load(text []byte, patterns map[string]string) (*Document, error) {
	var root source
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("openapi.Load: %w", err)
	}
	public, err := Public(text)
	if err != nil {
		return nil, err
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(public))
	if err != nil {
		return nil, fmt.Errorf("openapi.Load: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.RegisterFormat(&jsonschema.Format{Name: "date-time", Validate: readableTime})
	if err := compiler.AddResource(address, parsed); err != nil {
		return nil, fmt.Errorf("openapi.Load: %w", err)
	}
	r := reader{shared: root.Components.Parameters, compiler: compiler, patterns: patterns}
	d := &Document{JSON: public}
	for path, item := range root.Paths {
		for method, operation := range item.Operations {
			o, err := r.operation(path, method, item.Parameters, operation)
			if err != nil {
				return nil, fmt.Errorf("openapi.Load: %s %s: %w", method, path, err)
			}
			d.Operations = append(d.Operations, o)
		}
	}
	for i := range d.Operations {
		d.Operations[i].headers = r.headers
	}
	slices.SortFunc(d.Operations, func(a, b Operation) int { return strings.Compare(a.ID, b.ID) })
	return d, nil
}

// dateTime is RFC 3339 without what time.Time cannot read: leap seconds. A body is read with T and Z
// in capitals.
var dateTime = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)

func readableTime(value any) error {
	text, ok := value.(string)
	switch {
	case !ok:
		return nil
	case !dateTime.MatchString(text):
		return errors.New("not a time")
	}
	return new(time.Time).UnmarshalText([]byte(strings.ToUpper(text)))
}

// reader reads operations and resolves their references.
type reader struct {
	shared   map[string]parameterSource
	compiler *jsonschema.Compiler
	patterns map[string]string
	headers  []header // those that operations take
}

func (r *reader) operation(path, method string, shared []parameterSource, from operationSource) (Operation, error) {
	o := Operation{ID: from.ID, Method: strings.ToUpper(method), Path: path, Roles: from.Roles, patterns: r.patterns}
	for _, needs := range from.Security {
		o.Open = o.Open || len(needs) == 0
	}
	base := "/paths/" + escape(path)
	for _, place := range []struct {
		pointer string
		list    []parameterSource
	}{{base + "/parameters", shared}, {base + "/" + method + "/parameters", from.Parameters}} {
		for i, described := range place.list {
			p, err := r.parameter(fmt.Sprintf("%s/%d", place.pointer, i), described)
			if err != nil {
				return o, err
			}
			o.parameters = append(o.parameters, p)
			o.NeedsKey = o.NeedsKey || p.name == "Idempotency-Key"
			if p.in == "query" {
				o.query = append(o.query, p.name)
			}
			if p.in == "header" && !slices.Contains(r.headers, header{p.name, plainName(p.name)}) {
				r.headers = append(r.headers, header{p.name, plainName(p.name)})
			}
		}
	}
	o.ignoresVersion = o.Method != http.MethodGet && !slices.ContainsFunc(o.parameters, func(p parameter) bool { return p.name == "If-Match" })
	if o.HasBody = from.RequestBody != nil; !o.HasBody {
		return o, nil
	}
	o.BodyOptional = !from.RequestBody.Required
	if o.MaxBody = from.MaxBody; o.MaxBody < 1 {
		return o, errors.New("an operation with a body needs x-max-body-bytes")
	}
	var err error
	o.body, err = r.compiler.Compile(address + "#" + base + "/" + method + "/requestBody/content/application~1json/schema")
	o.shells = shellsOf(o.body)
	o.reading = readingOf(o.body, make(map[*jsonschema.Schema]*reading))
	return o, err
}

func (r reader) parameter(pointer string, described parameterSource) (p parameter, err error) {
	if reference := described.Ref; reference != "" {
		pointer, described = strings.TrimPrefix(reference, "#"), r.shared[reference[strings.LastIndex(reference, "/")+1:]]
	}
	p = parameter{name: described.Name, in: described.In, required: described.Required,
		integer: described.Schema.Type == "integer", boolean: described.Schema.Type == "boolean"}
	p.schema, err = r.compiler.Compile(address + "#" + pointer + "/schema")
	p.reading = readingOf(p.schema, make(map[*jsonschema.Schema]*reading))
	return p, err
}

// escape writes a name as a part of a JSON pointer in a URL.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}
