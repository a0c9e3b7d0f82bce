package openapi

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"triprize/api"
)

// documents are bodies to begin with: the contract's examples, and what other
// programs have stumbled over.
var documents = []string{
	`{"name":"Summer triangle","base_length":3,"currency":"JPY","purchase_limit":2,"layers":[{"layer":1,"price":1000,"prizes":[{"name":"Grand prize","count":1}]},{"layer":2,"price":500},{"layer":3,"price":100,"prizes":[]}]}`,
	`{"user_id":"user-1","selection":{"layer":3,"quantity":2},"payment":{"method":"external","reference":"order-4711"}}`,
	`{"policies":{"late_payment":"refund","unsold":"burn","cancellation_until":"2030-01-01t00:00:00z","beacon":1}}`,
	`{"user_id":"Ä本","selection":{"positions":[{"layer":1,"column":1},{"column":2,"layer":1}]},"payment":{"reference":"o","method":"external"}}`,
	` { "payment" : {"method":"wallet"} , "selection" : { "quantity" : 1 } , "user_id" : "a" } `, `{"user_id":"a","selection":{"positions":[{"layer":1,"column":1},{"column":1,"layer":1}]},"payment":{"method":"wallet"}}`,
	`{"user_id":"a","selection":{"layer":1},"payment":{"method":"wallet"}}`, `{"user_id":"a","selection":{"quantity":01},"payment":{"method":"wallet"}}`, `{"user_id":"a","selection":{"quantity":1,"positions":[]},"payment":{"method":"wallet"}}`,
	`{"user_id":"a","selection":{"quantity":1e0},"payment":{"method":"wallet"},}`, `{"user_id":"a","selection":{"quantity":1},"payment":{"method":"gold"}}`, `{"amount":-1,"currency":"jpy"}`, `{"amount":1,"currency":"JPY"}`,
	`{}`, `[]`, `null`, `0`, `-0`, `""`, `"\ud800"`, `{"":{"":[""]}}`, `{"a~1b/c~0d":{"~":1},"%00":2}`, `{"name":"\u0000"}`, `{"base_length":1e400}`, `{"base_length":1e999999}`, `{"base_length":-1E-2000000000}`,
	`{"layers":[{"layer":1e308,"price":9223372036854775808}]}`, `{"sale_ends_at":"2030-06-30T23:59:60Z"}`, `{"name":1,"name":2}`, "{\"name\":\"\xff\"}", strings.Repeat("[", 20_000), "\ufeff{}", `{"layers":{"0":[]}}`, ` {"__proto__":{}} x`,
}

// resolve follows a JSON pointer (RFC 6901).
func resolve(value any, pointer string) (any, bool) {
	if pointer == "" {
		return value, true
	}
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch container := value.(type) {
		case map[string]any:
			inner, ok := container[token]
			if !ok {
				return nil, false
			}
			value = inner
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(container) {
				return nil, false
			}
			value = container[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// For every body: the check ends, and what it finds fault with is
// there, or missing from something that is there.
func FuzzTheFaultsOfABodyAreInTheBody(f *testing.F) {
	d, err := Load(api.OpenAPI, nil)
	if err != nil {
		f.Fatal(err)
	}
	var operations []*Operation
	for i := range d.Operations {
		if d.Operations[i].HasBody {
			operations = append(operations, &d.Operations[i])
		}
	}
	for _, document := range documents {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		parsed, invalid := jsonschema.UnmarshalJSON(bytes.NewReader(sent))
		for _, o := range operations {
			canonical, texts, faults, err := o.readAny(sent, nil)
			if plain, own, ok := o.readPlain(sent, nil); ok && (err != nil || len(faults) > 0 || !bytes.Equal(plain, canonical) || !maps.Equal(own, texts)) {
				t.Errorf("%s: %q is read as %q %v, not as %q %v: %v %v", o.ID, sent, plain, own, canonical, texts, faults, err)
			}
			if err != nil || invalid != nil {
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
				_, there := resolve(parsed, fault.Pointer)
				if _, above := resolve(parsed, parent); fault.Detail == "" || !there && (fault.Detail != "is required" || !above) {
					t.Errorf("%s: %q %s: there is no such place", o.ID, fault.Pointer, fault.Detail)
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
			for _, p := range o.parameters {
				if p.reading != nil && p.reading.accepts(text) && len(o.check(p.schema, text, p.name)) > 0 {
					t.Errorf("%s: %s accepts %q", o.ID, p.name, text)
				}
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
