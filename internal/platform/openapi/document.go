// Package openapi checks requests against an OpenAPI 3.1 document.
//
// It checks parameters in path, query and headers, and JSON bodies. Every fault has a location (a JSON pointer, or the
// name of a parameter) and a sentence about what is allowed. It depends on no web framework.
//
//	[Load] ─▶ [Document] ─▶ [Operation.CheckParameters], [Operation.ReadBody]
//
// A body is read once, so that the cost is bounded by its length: limits (depth, counts, names, lengths, numbers) are
// checked first, up to 20 faults. Load rejects schemas with keywords that are not checked here.
//
// The document also has the roles of an operation (x-roles), the maximum length of its body (x-max-body-bytes), and
// whether it needs an Idempotency-Key.
package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is an OpenAPI document, ready to check requests.
type Document struct {
	JSON       []byte // as served: see Public
	Operations []Operation
}

// Operation is one operation of the API: a method on a path.
type Operation struct {
	ID           string
	Method       string
	Path         string   // as OpenAPI writes it: /v1/jobs/{job}
	Roles        []string // that may call it; empty: no authentication
	Open         bool     // also without a credential: security has {}
	HasBody      bool
	BodyOptional bool // a missing body is {}
	MaxBody      int  // bytes (x-max-body-bytes)
	NeedsKey     bool // an Idempotency-Key is required

	body           *rule
	parameters     []parameter
	query          []string          // its parameters in the query
	headers        map[string]string // of all operations, by their plain names
	ignoresVersion bool              // it is not a GET and does not take If-Match
}

type parameter struct {
	name, in string
	required bool
	is       *rule
}

// source has the parts of a document that are read.
type source struct {
	Paths map[string]struct {
		Parameters []parameterSource
		Operations map[string]operationSource `yaml:",inline"` // by method
	}
	Components struct {
		Parameters map[string]parameterSource
		Schemas    map[string]yaml.Node
	}
}

type operationSource struct {
	ID          string   `yaml:"operationId"`
	Roles       []string `yaml:"x-roles"`
	Security    []map[string]any
	Parameters  []parameterSource
	RequestBody *struct {
		Required bool
		Content  map[string]struct{ Schema *schemaSource } // by media type
	} `yaml:"requestBody"`
	MaxBody int `yaml:"x-max-body-bytes"`
}

type parameterSource struct {
	Ref      string `yaml:"$ref"`
	Name, In string
	Required bool
	Schema   *schemaSource
}

// Load reads an OpenAPI 3.1 document in YAML. patterns has the error texts for values that do not match a regular
// expression. Without one the error repeats the expression.
func Load(text []byte, patterns map[string]string) (*Document, error) {
	var root source
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("openapi.Load: %w", err)
	}
	public, err := Public(text)
	if err != nil {
		return nil, err
	}
	r := reader{shared: root.Components.Parameters, schemas: root.Components.Schemas, rules: make(map[string]*rule), patterns: patterns, headers: make(map[string]string)}
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
	slices.SortFunc(d.Operations, func(a, b Operation) int { return strings.Compare(a.ID, b.ID) })
	return d, nil
}

// reader reads operations and resolves their references.
type reader struct {
	shared   map[string]parameterSource
	schemas  map[string]yaml.Node
	rules    map[string]*rule // of the referenced schemas
	patterns map[string]string
	headers  map[string]string // of all operations
}

func (r *reader) operation(path, method string, shared []parameterSource, from operationSource) (o Operation, err error) {
	o = Operation{ID: from.ID, Method: strings.ToUpper(method), Path: path, Roles: from.Roles, headers: r.headers}
	for _, needs := range from.Security {
		o.Open = o.Open || len(needs) == 0
	}
	for _, described := range slices.Concat(shared, from.Parameters) {
		if described.Ref != "" {
			described = r.shared[strings.TrimPrefix(described.Ref, "#/components/parameters/")]
		}
		p := parameter{name: described.Name, in: described.In, required: described.Required}
		if p.is, err = r.rule(described.Schema); err != nil || p.is == nil {
			return o, fmt.Errorf("parameter %s: %w", p.name, cmp.Or(err, errors.New("it has no schema")))
		}
		o.parameters = append(o.parameters, p)
		o.NeedsKey = o.NeedsKey || p.name == "Idempotency-Key"
		switch p.in {
		case "query":
			o.query = append(o.query, p.name)
		case "header":
			r.headers[plainName(p.name)] = p.name
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
	if o.body, err = r.rule(from.RequestBody.Content["application/json"].Schema); o.body == nil && err == nil {
		err = errors.New("its body has no schema")
	}
	return o, err
}

// Public returns a document as JSON for clients: without the extensions for our code generators (x-go-*, x-order), in
// the order of the source. The properties of a schema are sorted by x-order; those without one follow.
func Public(source []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, fmt.Errorf("openapi.Public: %w", err)
	}
	var text bytes.Buffer
	if err := writeJSON(&text, &document, false); err != nil {
		return nil, fmt.Errorf("openapi.Public: %w", err)
	}
	return text.Bytes(), nil
}

// writeJSON writes a node; areProperties: it has the properties of a schema.
func writeJSON(text *bytes.Buffer, n *yaml.Node, areProperties bool) error {
	switch n.Kind {
	case yaml.DocumentNode:
		return writeJSON(text, n.Content[0], false)
	case yaml.AliasNode:
		return writeJSON(text, n.Alias, areProperties)
	case yaml.MappingNode:
		members := slices.DeleteFunc(slices.Collect(slices.Chunk(n.Content, 2)), func(m []*yaml.Node) bool {
			return strings.HasPrefix(m[0].Value, "x-go-") || m[0].Value == "x-order"
		})
		if areProperties {
			slices.SortStableFunc(members, func(a, b []*yaml.Node) int { return orderOf(a[1]) - orderOf(b[1]) })
		}
		text.WriteByte('{')
		for i, m := range members {
			if i > 0 {
				text.WriteByte(',')
			}
			if err := writeScalar(text, m[0].Value); err != nil {
				return err
			}
			text.WriteByte(':')
			if err := writeJSON(text, m[1], m[0].Value == "properties"); err != nil {
				return err
			}
		}
		text.WriteByte('}')
		return nil
	case yaml.SequenceNode:
		text.WriteByte('[')
		for i, element := range n.Content {
			if i > 0 {
				text.WriteByte(',')
			}
			if err := writeJSON(text, element, false); err != nil {
				return err
			}
		}
		text.WriteByte(']')
		return nil
	}
	var value any
	if n.Tag == "!!timestamp" { // a text that only YAML parses as a time
		return writeScalar(text, n.Value)
	}
	if err := n.Decode(&value); err != nil {
		return err
	}
	return writeScalar(text, value)
}

func writeScalar(text *bytes.Buffer, value any) error {
	encoded, err := json.Marshal(value)
	text.Write(encoded)
	return err
}

// orderOf returns the x-order of a property.
func orderOf(property *yaml.Node) int {
	var is struct {
		Order *int `yaml:"x-order"`
	}
	if err := property.Decode(&is); err != nil || is.Order == nil {
		return 1 << 30 // the last
	}
	return *is.Order
}
