package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"triprize/api"
)

// documents are bodies to begin with: the contract's examples, and what other
// programs have stumbled over.
var documents = []string{
	`{"name":"Summer triangle","base_length":3,"currency":"JPY","purchase_limit":2,"layers":[{"layer":1,"price":1000,"prizes":[{"name":"Grand prize","count":1}]},{"layer":2,"price":500},{"layer":3,"price":100,"prizes":[]}]}`,
	`{"user_id":"user-1","selection":{"layer":3,"quantity":2},"payment":{"method":"external","reference":"order-4711"}}`,
	`{"policies":{"unsold":"burn","cancellation_until":"2030-01-01t00:00:00z","beacon":1}}`,
	`{"user_id":"Ä本","selection":{"positions":[{"layer":1,"column":1},{"column":2,"layer":1}]},"payment":{"reference":"o","method":"external"}}`,
	` { "payment" : {"method":"wallet"} , "selection" : { "quantity" : 1 } , "user_id" : "a" } `, `{"user_id":"a","selection":{"positions":[{"layer":1,"column":1},{"column":1,"layer":1}]},"payment":{"method":"wallet"}}`,
	`{"user_id":"a","selection":{"layer":1},"payment":{"method":"wallet"}}`, `{"user_id":"a","selection":{"quantity":01},"payment":{"method":"wallet"}}`, `{"user_id":"a","selection":{"quantity":1,"positions":[]},"payment":{"method":"wallet"}}`,
	`{"user_id":"a","selection":{"quantity":1e0},"payment":{"method":"wallet"},}`, `{"user_id":"a","selection":{"quantity":1},"payment":{"method":"gold"}}`, `{"amount":-1,"currency":"jpy"}`, `{"amount":1,"currency":"JPY"}`,
	`{}`, `[]`, `null`, `0`, `-0`, `""`, `"\ud800"`, `{"":{"":[""]}}`, `{"a~1b/c~0d":{"~":1},"%00":2}`, `{"name":"\u0000"}`, `{"base_length":1e400}`, `{"base_length":1e999999}`, `{"base_length":-1E-2000000000}`,
	`{"layers":[{"layer":1e308,"price":9223372036854775808}]}`, `{"sale_ends_at":"2030-06-30T23:59:60Z"}`, `{"name":1,"name":2}`, "{\"name\":\"\xff\"}", strings.Repeat("[", 20_000), "\ufeff{}", `{"layers":{"0":[]}}`, ` {"__proto__":{}} x`,
}

// strange says in schemas what our contract does not say today, and could.
const strange = `
info: {version: "1", title: T}
paths:
  /strange:
    post:
      operationId: strange
      x-max-body-bytes: 1024
      requestBody:
        content:
          application/json:
            schema:
              type: object
              additionalProperties: false
              properties:
                anyNumber: {type: integer}
                large: {type: integer, maximum: 99999999999999999}
                negative: {type: integer, minimum: -99999999999999999}
                text: {type: string}
                few: {type: array, maxItems: 2, items: {type: integer}}
                some: {type: object, properties: {a: {type: string}}}
                flag: {type: boolean}
                maybe: {type: [string, "null"]}
                self: {$ref: "#/components/schemas/Self"}
components:
  schemas:
    Self: {type: object, additionalProperties: false, properties: {self: {$ref: "#/components/schemas/Self"}, few: {type: array, maxItems: 2, items: {type: integer}}}}
`

func TestASchemaThatSaysMoreThanIsCheckedIsRefused(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"type: integer, multipleOf: 2", "type: integer, minimum: a", "type: integer, enum: [1, 2]", "type: number", "{}",
		"type: [string, integer]", "type: string, format: email", "type: object, not: {required: [a, b]}", "type: object, oneOf: [{required: [a]}]", `$ref: "#/components/schemas/Self", maxLength: 2`,
		`$ref: "#/components/schemas/Other"`, "type: array, items: {type: string, const: a}", "type: object, additionalProperties: {type: string, const: a}"} {
		if _, err := Load([]byte(strings.Replace(strange, "type: boolean", more, 1)), nil); err == nil {
			t.Errorf("a schema with %s is taken", more)
		}
	}
}

// almostPlain are bodies that each have one thing only that a plain one may not have.
var almostPlain = []string{
	`{"reason":"a","reason":"b"}`, `{"payment":{"":1},"payment":{}}`, `{"reason":"a","reason":"a"}`, `{"reason":"a","b":"c"}`, "{\"reason\":\"\xff\"}", "{\"reason\":\"\x7f\"}", `{"reason":"\u0061"}`,
	`{"reason":"` + strings.Repeat("a", 501) + `"}`, `{"reason":"a`, `{"reason":"a"}}`, `{"reason":"a"} "b"`, `{"user_id":"a""quantity":1}`, `{"user_id":"a",}`, `{"reason":5}`, `{"reason":null}`,
	`{"quantity":1}`, `{"user_id":"","quantity":1}`, `{"user_id":"a"}`, `{"user_id":"a","quantity":1,"positions":[{"number":1}]}`, `{"user_id":"a","layer":1,"positions":[{"number":1}]}`,
	`{"user_id":"a","positions":[]}`, `{"user_id":"a","positions":[{}]}`, `{"user_id":"a","positions":[{"number":1},{"number":1}]}`, `{"user_id":"a","positions":[{"number":1}{"number":2}]}`, `{"user_id":"a","positions":[{"number":1},]}`,
	`{"user_id":"a","quantity":0}`, `{"user_id":"a","quantity":1001}`, `{"user_id":"a","quantity":1.0}`, `{"user_id":"a","quantity":+1}`, `{"user_id":"a","quantity":01}`, `{"user_id":"a","quantity":1e1}`, `{"user_id":"a","quantity":9007199254740993}`,
	`{"user_id":"a","selection":{},"payment":{"method":"wallet"}}`, `{"user_id":"a","selection":{"quantity":1},"payment":{"method":"gold"}}`, `{"user_id":"a","selection":{"hold_id":"a"},"payment":{"method":"wallet"}}`,
	`{"amount":1,"metadata":{"":"x"}}`, `{"amount":1,"metadata":{"a":"x","\ue000":"y","🎟":"z"}}`, `{"amount":1,"metadata":{"a":1}}`, `{"amount":1,"metadata":{"a":null}}`,
	`{"amount":1,"reference":"Ã¤"}`, `{"policies":{"beacon":null}}`, `{"policies":{"beacon":trueish}}`,
	`{"anyNumber":999999999999999}`, `{"anyNumber":9007199254740993}`, `{"anyNumber":-9007199254740993}`, `{"large":9007199254740993}`, `{"negative":-9007199254740993}`, "{\"text\":\"\n\"}", `{"few":[1,2,3]}`, `{"some":{"b":1}}`, `{"flag":null}`, `{"flag":"true"}`,
	`{"maybe":null}`, `{"self":{"self":{"few":[1,2,3]}}}`,
}

// lower are bounds that a caller sets below those of the contract.
var lower = map[string]int{"/selection/positions": 1, "/positions": 1, "/layers": 2, "/few": 1, "/self/few": 1}

// places are the JSON pointers (RFC 6901) of all that a body has, also of what a later
// member of the same name hides. The body is valid JSON.
func places(sent []byte) map[string]bool {
	all := make(map[string]bool)
	d := json.NewDecoder(bytes.NewReader(sent))
	d.UseNumber()
	token := func() json.Token {
		read, err := d.Token()
		if err != nil {
			panic(err) // it would be read for ever
		}
		return read
	}
	var walk func(at string)
	walk = func(at string) {
		all[at] = true
		first := token()
		if first != json.Delim('{') && first != json.Delim('[') {
			return
		}
		for i := 0; d.More(); i++ {
			name := strconv.Itoa(i)
			if first == json.Delim('{') {
				name = strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(token()))
			}
			walk(at + "/" + name)
		}
		token() // its end
	}
	walk("")
	return all
}

// compilerOf reads schemas as others do.
func compilerOf(f *testing.F, d *Document) *jsonschema.Compiler {
	f.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(d.JSON))
	if err != nil {
		f.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.RegisterFormat(&jsonschema.Format{Name: "date-time", Validate: func(value any) error {
		if text, ok := value.(string); ok && !isTime(text) {
			return errNotJSON
		}
		return nil
	}})
	if err := compiler.AddResource("file:///contract.json", parsed); err != nil {
		f.Fatal(err)
	}
	return compiler
}

// compiled is the schema of a body on a path.
func compiled(f *testing.F, compiler *jsonschema.Compiler, path, method string) *jsonschema.Schema {
	f.Helper()
	escaped := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path)
	schema, err := compiler.Compile("file:///contract.json#/paths/" + escaped + "/" + strings.ToLower(method) + "/requestBody/content/application~1json/schema")
	if err != nil {
		f.Fatal(err)
	}
	return schema
}

// checkCanonical checks that a form of a body is canonical, and right by a checker that is not ours.
func checkCanonical(t *testing.T, id string, schema *jsonschema.Schema, form []byte, texts map[string]string) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(form))
	if err != nil {
		t.Fatalf("%s: %q: %v", id, form, err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %q passes: %v", id, form, err)
	}
	if again, err := jcs.Transform(form); err != nil || !bytes.Equal(again, form) {
		t.Errorf("%s: %q is not canonical: %q %v", id, form, again, err)
	}
	fields, _ := value.(map[string]any)
	for name, field := range fields {
		if text, _ := field.(string); texts[name] != text {
			t.Errorf("%s: %q has the texts %v", id, form, texts)
		}
	}
}

// For every body: the check ends, what passes is right, and and what it finds fault with is
// there, or missing from something that is there.
func FuzzTheFaultsOfABodyAreInTheBody(f *testing.F) {
	var operations []*Operation
	schemas := make(map[*Operation]*jsonschema.Schema)
	for _, contract := range [][]byte{api.OpenAPI, []byte(strange)} {
		d, err := Load(contract, nil)
		if err != nil {
			f.Fatal(err)
		}
		compiler := compilerOf(f, d)
		for i := range d.Operations {
			if o := &d.Operations[i]; o.HasBody {
				operations = append(operations, o)
				schemas[o] = compiled(f, compiler, o.Path, o.Method)
			}
		}
	}
	for _, document := range slices.Concat(documents, almostPlain) {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		var there map[string]bool // nil: the body is no JSON
		if json.Valid(sent) {
			there = places(sent)
		}
		for _, o := range operations {
			for _, bounds := range []map[string]int{nil, lower} {
				canonical, texts, faults, err := o.ReadBody(sent, bounds)
				if err == nil && len(faults) == 0 {
					checkCanonical(t, o.ID, schemas[o], canonical, texts)
				}
				if err != nil || there == nil {
					if err == nil || canonical != nil || faults != nil {
						t.Errorf("%s: %q is no JSON: %v %v", o.ID, sent, faults, err)
					}
					continue
				}
				if len(faults) > maxFaults {
					t.Errorf("%s: %d faults", o.ID, len(faults))
				}
				for _, fault := range faults {
					parent := fault.Pointer[:max(0, strings.LastIndex(fault.Pointer, "/"))]
					if fault.Detail == "" || !there[fault.Pointer] && (fault.Detail != "is required" || !there[parent]) {
						t.Errorf("%s: %q %s: there is no such place", o.ID, fault.Pointer, fault.Detail)
					}
				}
			}
		}
	})
}

// For every path, query and header: the check ends, names parameters
// that exist, and lets nothing into a path or query that is not UTF-8.
func FuzzTheFaultsOfParametersNameParameters(f *testing.F) {
	d, err := Load(api.OpenAPI, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"", "1", "007", "+5", "-1", "201", "9223372036854775808", "1e3", "0x10", "01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e", "{01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e}",
		"urn:uuid:01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e", "active", "a\x00b", "\xff", "\xed\xa0\x80", "' OR 1=1 --", "%2e%2e", strings.Repeat("a", 2000)} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, sent bool) {
		for i := range d.Operations {
			o := &d.Operations[i]
			names := make([]string, len(o.parameters))
			for j, p := range o.parameters {
				if names[j] = p.name; p.in == "query" {
					names[j] = "?" + p.name
				}
			}
			get := func(in, _ string) (string, bool) {
				if !sent && in != "path" {
					return "", false
				}
				return text, true
			}
			faults, nowhere := o.CheckParameters(get)
			inPath := false
			for _, fault := range faults {
				at := slices.Index(names, fault.Pointer)
				if at < 0 || fault.Detail == "" {
					t.Fatalf("%s: a fault of %q: %q", o.ID, fault.Pointer, fault.Detail)
				}
				inPath = inPath || o.parameters[at].in == "path"
			}
			if nowhere != inPath {
				t.Errorf("%s: nowhere is %t: %v", o.ID, nowhere, faults)
			}
			if len(faults) > 0 {
				continue
			}
			for _, value := range o.Target(get) {
				if !utf8.ValidString(value) {
					t.Errorf("%s: its target has %q", o.ID, value)
				}
			}
		}
	})
}
