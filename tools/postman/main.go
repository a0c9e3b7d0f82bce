// Command postman writes the Postman collection from the contract (api/openapi.yaml) and the
// scenarios beside this file: go -C tools run ./postman
//
// The contract has the method, the path and the role of an operation, and whether it takes an
// Idempotency-Key. A scenario says what is different, and what is expected of the answer.
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed scenarios.yaml
var scenarios []byte

const (
	contract   = "../api/openapi.yaml"
	collection = "../docs/postman/triprize.postman_collection.json"
)

// scenario is a folder of the collection.
type scenario struct {
	Name, About string
	Steps       []step
}

// step is a request, and what is expected of its answer.
type step struct {
	Name, About string
	Call        string            // operationId
	URL         string            // a path, in place of an operation
	Method      string            // of URL; default: GET
	As          string            // app, operator or nobody; default: operator, where an app may not call it
	At          map[string]string // parameters of the path; default: the variable of the same name
	Query       string
	Key         *string           // Idempotency-Key; default: a new one, where the operation takes one; empty: none
	Headers     map[string]string // others
	Body        string
	Before      string            // script that runs before the request
	Test        string            // the name of the test
	Status      int               // of the answer; 0: any
	Is          map[string]any    // members of the answer
	Expect      string            // further lines of the test, which have the answer's JSON as body
	Save        map[string]string // variables that become members of the answer
	Script      string            // the whole test, in place of the four above
}

// operation is what the contract says of an operation.
type operation struct {
	ID         string   `yaml:"operationId"`
	Roles      []string `yaml:"x-roles"`
	Parameters []struct {
		Ref string `yaml:"$ref"`
	}
	method, path string
}

func (o operation) takesKey() bool {
	return slices.ContainsFunc(o.Parameters, func(p struct {
		Ref string `yaml:"$ref"`
	},
	) bool {
		return strings.HasSuffix(p.Ref, "/IdempotencyKey")
	})
}

func operations(source []byte) (map[string]operation, error) {
	var document struct {
		Paths map[string]map[string]yaml.Node
	}
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, err
	}
	all := make(map[string]operation)
	for path, methods := range document.Paths {
		for method, node := range methods {
			if !slices.Contains([]string{"get", "post", "patch", "delete", "put"}, method) {
				continue
			}
			o := operation{method: strings.ToUpper(method), path: path}
			if err := node.Decode(&o); err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			all[o.ID] = o
		}
	}
	return all, nil
}

// The collection, as Postman reads it.
type (
	item struct {
		Name        string  `json:"name"`
		Description string  `json:"description,omitempty"`
		Item        []item  `json:"item,omitempty"`
		Request     *ask    `json:"request,omitempty"`
		Event       []event `json:"event,omitempty"`
	}
	ask struct {
		Method string  `json:"method"`
		URL    string  `json:"url"`
		Auth   *auth   `json:"auth,omitempty"`
		Header []field `json:"header"`
		Body   *raw    `json:"body,omitempty"`
	}
	auth struct {
		Type   string  `json:"type"`
		Bearer []field `json:"bearer,omitempty"`
	}
	field struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	raw struct {
		Mode string `json:"mode"`
		Raw  string `json:"raw"`
	}
	event struct {
		Listen string `json:"listen"`
		Script struct {
			Type string   `json:"type"`
			Exec []string `json:"exec"`
		} `json:"script"`
	}
)

func scriptOf(listen, text string) (e event) {
	e.Listen, e.Script.Type, e.Script.Exec = listen, "text/javascript", strings.Split(strings.TrimRight(text, "\n"), "\n")
	return e
}

func bearer(role string) *auth {
	if role == "nobody" {
		return &auth{Type: "noauth"}
	}
	return &auth{Type: "bearer", Bearer: []field{{"token", "{{" + role + "_key}}"}}}
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

func (s step) item(all map[string]operation) (item, error) {
	o, known := all[s.Call]
	if s.URL != "" {
		o, known = operation{method: cmp.Or(s.Method, "GET"), path: s.URL, Roles: []string{"app"}}, true
	}
	if !known {
		return item{}, fmt.Errorf("%s: the contract has no operation %q", s.Name, s.Call)
	}
	r := &ask{Method: o.method, Header: []field{}}
	path := o.path
	if s.URL == "" {
		path = parameter.ReplaceAllStringFunc(path, func(p string) string {
			if at, given := s.At[strings.Trim(p, "{}")]; given {
				return at
			}
			return "{" + p + "}"
		})
	}
	r.URL = "{{base_url}}" + path
	if s.Query != "" {
		r.URL += "?" + s.Query
	}
	if s.As == "" && !slices.Contains(o.Roles, "app") {
		s.As = "operator"
	}
	if s.As != "" && s.As != "app" {
		r.Auth = bearer(s.As)
	}
	key := ""
	if o.takesKey() {
		key = "{{$guid}}"
	}
	if s.Key != nil {
		key = *s.Key
	}
	if key != "" {
		r.Header = append(r.Header, field{"Idempotency-Key", key})
	}
	if s.Body != "" {
		if _, given := s.Headers["Content-Type"]; !given {
			r.Header = append(r.Header, field{"Content-Type", "application/json"})
		}
		r.Body = &raw{"raw", s.Body}
		var pretty bytes.Buffer
		if json.Indent(&pretty, []byte(s.Body), "", "  ") == nil && len(s.Body) > 60 {
			r.Body.Raw = pretty.String()
		}
	}
	for _, name := range sorted(s.Headers) {
		r.Header = append(r.Header, field{name, s.Headers[name]})
	}
	made := item{Name: s.Name, Description: s.About, Request: r}
	if s.Before != "" {
		made.Event = append(made.Event, scriptOf("prerequest", s.Before))
	}
	test, err := s.test()
	made.Event = append(made.Event, scriptOf("test", test))
	return made, err
}

// test is the script that runs after the request.
func (s step) test() (string, error) {
	if s.Script != "" {
		return s.Script, nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pm.test(%s, () => {\n", quoted(s.Test))
	if s.Status != 0 {
		fmt.Fprintf(&b, "  pm.response.to.have.status(%d);\n", s.Status)
	}
	if len(s.Is) > 0 || len(s.Save) > 0 || strings.Contains(s.Expect, "body") {
		b.WriteString("  const body = pm.response.json();\n")
	}
	for _, member := range sorted(s.Is) {
		value, err := json.Marshal(s.Is[member])
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.Name, err)
		}
		fmt.Fprintf(&b, "  pm.expect(body.%s).to.eql(%s);\n", member, value)
	}
	for line := range strings.Lines(s.Expect) {
		b.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
	}
	for _, variable := range sorted(s.Save) {
		fmt.Fprintf(&b, "  pm.collectionVariables.set(%s, body.%s);\n", quoted(variable), s.Save[variable])
	}
	return b.String() + "});", nil
}

func quoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `\'`) + "'"
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// generate returns the collection.
func generate(contract []byte) ([]byte, error) {
	all, err := operations(contract)
	if err != nil {
		return nil, err
	}
	var source struct {
		About     string
		Test      string // of every answer
		Variables []string
		Scenarios []scenario
	}
	decoder := yaml.NewDecoder(bytes.NewReader(scenarios))
	decoder.KnownFields(true)
	if err := decoder.Decode(&source); err != nil {
		return nil, err
	}
	whole := struct {
		Info struct {
			Name        string `json:"name"`
			Description string `json:"description"`
			Schema      string `json:"schema"`
		} `json:"info"`
		Auth     *auth   `json:"auth"`
		Item     []item  `json:"item"`
		Event    []event `json:"event"`
		Variable []field `json:"variable"`
	}{Auth: bearer("app"), Event: []event{scriptOf("test", source.Test)}, Variable: []field{{"base_url", "http://127.0.0.1:8080"}}}
	whole.Info.Name, whole.Info.Description = "Triprize", source.About
	whole.Info.Schema = "https://schema.getpostman.com/json/collection/v2.1.0/collection.json"
	for _, name := range source.Variables {
		whole.Variable = append(whole.Variable, field{name, ""})
	}
	for _, s := range source.Scenarios {
		folder := item{Name: s.Name, Description: s.About}
		for _, step := range s.Steps {
			made, err := step.item(all)
			if err != nil {
				return nil, err
			}
			folder.Item = append(folder.Item, made)
		}
		whole.Item = append(whole.Item, folder)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(whole)
	return b.Bytes(), err
}

func run() error {
	source, err := os.ReadFile(contract)
	if err != nil {
		return err
	}
	data, err := generate(source)
	if err != nil {
		return err
	}
	return os.WriteFile(collection, data, 0o644) //nolint:gosec // it is a document
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "postman:", err)
		os.Exit(1)
	}
}
