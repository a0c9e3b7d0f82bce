package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"triprize/internal/domain/fault"
)

// errNotJSON means that a body is no JSON at all, or none that has a canonical form.
var errNotJSON = errors.New("the body is not one valid JSON value")

// ReadBody checks a JSON body. It returns its canonical form (RFC 8785), with UUIDs in small letters
// and times in capitals, without the fields that are null and may be left out, except in a PATCH,
// and the texts in its outermost object; or what is wrong with it, by JSON pointer. The bounds
// come first: nothing is made of a body that exceeds one of them, or of a long one that
// has unknown fields. most has lower
// bounds than the contract's for the elements of some arrays, by JSON pointer. An error
// means that the body is not JSON, or has no canonical form because of invalid UTF-8.
func (o *Operation) ReadBody(sent []byte, most map[string]int) (canonical []byte, texts map[string]string, faults []fault.Field, err error) {
	if canonical, texts, ok := o.readPlain(sent, most); ok {
		return canonical, texts, nil, nil
	}
	return o.readAny(sent, most)
}

// readAny is ReadBody for every body.
func (o *Operation) readAny(sent []byte, most map[string]int) (canonical []byte, texts map[string]string, faults []fault.Field, err error) {
	if !utf8.Valid(sent) || !json.Valid(sent) { // which also bounds the depth
		return nil, nil, nil, errNotJSON
	}
	unknown, exceeded := o.checkBounds(sent, most)
	if len(exceeded) > 0 || len(unknown) > 0 && len(sent) > shortBody {
		return nil, nil, sorted(append(unknown, exceeded...)), nil
	}
	switch canonical, err = jcs.Transform(sent); {
	case err != nil && len(unknown) > 0: // because of what an unknown field has
		return nil, nil, unknown, nil
	case err != nil:
		return nil, nil, nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(canonical))
	if err != nil {
		return nil, nil, nil, err
	}
	if o.settle(o.body, &value) {
		shorter, err := json.Marshal(value)
		if err != nil {
			return nil, nil, nil, err
		}
		if canonical, err = jcs.Transform(shorter); err != nil {
			return nil, nil, nil, err
		}
	}
	texts = make(map[string]string)
	if fields, ok := value.(map[string]any); ok {
		for name, field := range fields {
			if text, ok := field.(string); ok {
				texts[name] = text
			}
		}
	}
	return canonical, texts, sorted(append(unknown, o.checkParts(o.body, value)...)), nil
}

// sorted returns the first faults of a body, by pointer.
func sorted(faults []fault.Field) []fault.Field {
	faults = faults[:min(len(faults), maxFaults)]
	slices.SortStableFunc(faults, func(a, b fault.Field) int { return strings.Compare(a.Pointer, b.Pointer) })
	return faults
}

// checkParts checks a value without its parts, then each of these. It stops at
// maxFaults: the checker alone would find every fault before it says one.
func (o *Operation) checkParts(schema *jsonschema.Schema, value any) (faults []fault.Field) {
	if schema == nil {
		return nil
	}
	known := single(schema)
	if known == nil {
		return o.check(schema, value, "")
	}
	faults = o.check(o.shells[known], value, "")
	part := func(schema *jsonschema.Schema, value any, name string) (more bool) {
		for _, f := range o.checkParts(schema, value) { // a pointer costs more than to check what it points to
			f.Pointer = join([]string{name}) + f.Pointer
			faults = append(faults, f)
		}
		faults = faults[:min(len(faults), maxFaults)]
		return len(faults) < maxFaults
	}
	switch v := value.(type) {
	case []any:
		for i, element := range v {
			if !part(known.Items2020, element, strconv.Itoa(i)) {
				break
			}
		}
	case map[string]any:
		faults = append(faults, o.checkFields(known, v)...)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			property, _ := propertyOf(known, name)
			if !part(property, v[name], name) {
				break
			}
		}
	}
	return faults
}

// checkFields checks which fields an object has: what its schema says of their names, and of
// fields that need or exclude others.
func (o *Operation) checkFields(schema *jsonschema.Schema, fields map[string]any) (faults []fault.Field) {
	if names := schema.PropertyNames; names != nil {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			for _, f := range o.check(names, name, "") {
				faults = append(faults, fault.Field{Pointer: join([]string{name}), Detail: "its name " + f.Detail})
			}
		}
	}
	if ways := ways(schema); ways != nil {
		if n := len(ways) - len(slices.DeleteFunc(slices.Clone(ways), func(way string) bool { _, there := fields[way]; return there })); n != 1 {
			faults = append(faults, fault.Field{Detail: "must have exactly one of " + enumerate(ways)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(schema.DependentRequired)) {
		if _, there := fields[name]; !there {
			continue
		}
		for _, needed := range schema.DependentRequired[name] {
			if _, there := fields[needed]; !there {
				faults = append(faults, fault.Field{Pointer: join([]string{name}), Detail: "goes with " + needed + " only"})
			}
		}
	}
	return faults
}

// enumerate writes names as a sentence does: a, b and c.
func enumerate(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// CheckParameters checks the parameters in path, query and headers that were
// sent; get returns their values. noSuchPath tells that a value in the path is
// invalid: no resource can have such a path.
func (o *Operation) CheckParameters(get func(in, name string) (text string, sent bool)) (faults []fault.Field, noSuchPath bool) {
	for _, p := range o.parameters {
		text, sent := get(p.in, p.name)
		if !sent {
			if p.required && p.in == "query" { // a header has an error code of its own, which others check
				faults = append(faults, fault.Field{Pointer: "?" + p.name, Detail: "is required"})
			}
			continue
		}
		if p.reading != nil && p.reading.accepts(text) {
			continue
		}
		var value any = text
		if n, err := strconv.ParseInt(text, 10, 64); p.integer && err == nil && strconv.FormatInt(n, 10) == text {
			value = json.Number(text)
		}
		if p.boolean && (text == "true" || text == "false") {
			value = text == "true"
		}
		pointer := p.name
		if p.in == "query" {
			pointer = "?" + p.name
		}
		found := o.check(p.schema, value, pointer)
		if p.in != "header" && !utf8.ValidString(text) {
			found = append(found, fault.Field{Pointer: pointer, Detail: "must be UTF-8"})
		}
		faults = append(faults, found...)
		noSuchPath = noSuchPath || p.in == "path" && len(found) > 0
	}
	return faults, noSuchPath
}

// Target returns the parameters of a request in path and query, name and value, in
// the contract's order. Spellings of the same value become one. get is that of
// CheckParameters, which must have found no fault.
func (o *Operation) Target(get func(in, name string) (text string, sent bool)) []string {
	var target []string
	for _, p := range o.parameters {
		text, _ := get(p.in, p.name)
		switch {
		case p.in != "path" && p.in != "query":
			continue
		case p.integer:
			if number, ok := new(big.Int).SetString(text, 10); ok {
				text = number.String()
			}
		default:
			text = spelled(p.schema, text)
		}
		target = append(target, p.name, text)
	}
	return target
}

// spelled returns the one spelling of a text that its format allows to be in small letters and in capitals.
func spelled(schema *jsonschema.Schema, text string) string {
	for ; schema != nil; schema = schema.Ref {
		if schema.Format == nil {
			continue
		}
		switch schema.Format.Name {
		case "uuid":
			return strings.ToLower(text)
		case "date-time":
			return strings.ToUpper(text)
		}
	}
	return text
}

// maxFaults bounds how many invalid fields one answer names.
const maxFaults = 20

// shortBody is how long a body may be of which everything is said that is wrong with it,
// though it has fields that are not known: nothing bounds what these contain.
const shortBody = 8 << 10

// maxName bounds the name of an unknown field that an answer repeats, in bytes.
const maxName = 128

// check returns what is wrong with a value; pointer names a parameter and is empty
// for a body.
func (o *Operation) check(schema *jsonschema.Schema, value any, pointer string) (faults []fault.Field) {
	invalid, ok := errors.AsType[*jsonschema.ValidationError](schema.Validate(value))
	if !ok {
		return nil
	}
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(faults) >= maxFaults {
			return
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
		if len(e.Causes) > 0 {
			return
		}
		at := pointer + join(e.InstanceLocation)
		switch k := e.ErrorKind.(type) {
		case *kind.Required:
			for _, name := range k.Missing {
				faults = append(faults, fault.Field{Pointer: at + join([]string{name}), Detail: "is required"})
			}
		case *kind.AdditionalProperties:
			slices.Sort(k.Properties)
			for _, name := range k.Properties[:min(len(k.Properties), maxFaults)] {
				if len(name) > maxName {
					faults = append(faults, fault.Field{Pointer: at, Detail: "has a field whose name is too long to be known"})
					continue
				}
				faults = append(faults, fault.Field{Pointer: at + join([]string{name}), Detail: "is not a known field"})
			}
		default:
			faults = append(faults, fault.Field{Pointer: at, Detail: o.sentence(k)})
		}
	}
	walk(invalid)
	slices.SortFunc(faults, func(a, b fault.Field) int { return strings.Compare(a.Pointer, b.Pointer) })
	return faults[:min(len(faults), maxFaults)]
}

// sentence says what a value must be.
func (o *Operation) sentence(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("must be %s, not %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		want := make([]string, len(k.Want))
		for i, w := range k.Want {
			want[i] = fmt.Sprint(w)
		}
		return "must be one of: " + strings.Join(want, ", ")
	case *kind.MinLength:
		return "must have at least " + count(k.Want, "character")
	case *kind.MaxLength:
		return "must have at most " + count(k.Want, "character")
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.MinItems:
		return "must have at least " + count(k.Want, "element")
	case *kind.MaxItems:
		return "must have at most " + count(k.Want, "element")
	case *kind.UniqueItems:
		return "must not have the same element twice"
	case *kind.MaxProperties:
		return "must have at most " + count(k.Want, "field")
	case *kind.MinProperties:
		return "must have at least " + count(k.Want, "field")
	case *kind.Format:
		return formats[k.Want]
	case *kind.Pattern:
		return cmp.Or(o.patterns[k.Want], "must match "+k.Want)
	default:
		return "is not what the contract says"
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// formats has a sentence for people for each format of strings.
var formats = map[string]string{
	"uuid":      "must be a UUID",
	"date-time": "must be a time like 2026-07-01T09:00:00Z (RFC 3339)",
}

// inPointer writes a name as a part of a JSON pointer. A Replacer builds its tables when it is
// used first.
var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

// join writes a path as a JSON pointer.
func join(path []string) string {
	var b strings.Builder
	for _, part := range path {
		b.WriteString("/" + inPointer.Replace(part))
	}
	return b.String()
}
