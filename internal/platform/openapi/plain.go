package openapi

import (
	"bytes"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// reading is what a schema says, in the form that one pass over a body can check. Most bodies
// are plain: known fields, texts without escapes, whole numbers, and no fault. For these one
// pass replaces five. It never refuses: what it does not understand is read by ReadBody.
type reading struct {
	kind string // object, array, string, integer or boolean

	fields    map[string]*reading // nil: read by ReadBody
	required  []string
	ways      []string
	dependent map[string][]string

	element  *reading
	min, max int // fields, elements or characters
	unique   bool

	enum    []string
	pattern jsonschema.Regexp
	format  func(any) error
	schema  *jsonschema.Schema

	least, most int64
}

// understood are the fields of a schema that readingOf knows, and those that check nothing.
var understood = regexp.MustCompile(`^(DraftVersion|Location|ID|Anchor|Types|Enum|Not|Format|Required|Properties|AdditionalProperties|DependentRequired|MinProperties|MinItems|MaxItems|UniqueItems|` +
	`Items2020|MinLength|MaxLength|Pattern|Maximum|Minimum|Title|Description|Default|Comment|ReadOnly|WriteOnly|Examples|Deprecated)$`)

// readingOf returns the reading of a schema, or nil when it says something else. known has
// those of the schemas above.
func readingOf(schema *jsonschema.Schema, known map[*jsonschema.Schema]*reading) *reading {
	for schema != nil && schema.Ref != nil {
		schema = schema.Ref
	}
	if schema == nil || schema.Not != nil && ways(schema) == nil || schema.Types == nil || len(schema.Types.ToStrings()) != 1 {
		return nil
	}
	if r, ok := known[schema]; ok {
		return r
	}
	known[schema] = nil
	fields := reflect.ValueOf(*schema)
	for i := range fields.NumField() {
		if f := fields.Type().Field(i); f.IsExported() && !fields.Field(i).IsZero() && !understood.MatchString(f.Name) {
			return nil
		}
	}
	r := &reading{kind: schema.Types.ToStrings()[0], required: schema.Required, ways: ways(schema), dependent: schema.DependentRequired,
		unique: schema.UniqueItems, pattern: schema.Pattern, least: -maxWhole, most: maxWhole}
	bound := func(from *int, otherwise int) int {
		if from == nil {
			return otherwise
		}
		return *from
	}
	whole := func(from *big.Rat, to *int64) bool {
		if from == nil {
			return true
		}
		*to = from.Num().Int64()
		return from.IsInt() && from.Num().IsInt64() && *to >= -maxWhole && *to <= maxWhole
	}
	switch {
	case r.kind == "object" && schema.AdditionalProperties == false:
		r.min = bound(schema.MinProperties, 0)
		r.fields = make(map[string]*reading, len(schema.Properties))
		for name, property := range schema.Properties {
			r.fields[name] = readingOf(property, known)
		}
	case r.kind == "array":
		r.min, r.max = bound(schema.MinItems, 0), bound(schema.MaxItems, maxElements)
		r.element = readingOf(schema.Items2020, known)
	case r.kind == "string":
		r.min, r.max = bound(schema.MinLength, 0), bound(schema.MaxLength, maxText)
		if schema.Format != nil {
			r.format, r.schema = schema.Format.Validate, schema
		}
	case r.kind == "integer" && whole(schema.Minimum, &r.least) && whole(schema.Maximum, &r.most):
	case r.kind == "boolean":
	default:
		return nil
	}
	if schema.Enum != nil {
		for _, value := range schema.Enum.Values {
			text, ok := value.(string)
			if !ok {
				return nil
			}
			r.enum = append(r.enum, text)
		}
	}
	known[schema] = r
	return r
}

// maxWhole is a whole number that a double holds, and that stays as it is in a canonical form.
const maxWhole = 999_999_999_999_999

// plainReader reads a plain body and writes its canonical form.
type plainReader struct {
	text []byte
	at   int
	out  []byte
	path []string
	most map[string]int    // elements of some arrays, by pointer
	own  map[string]string // texts of the outermost object
}

// readPlain returns the canonical form of a body that is plain and has no fault, and the texts
// in its outermost object.
func (o *Operation) readPlain(sent []byte, most map[string]int) (canonical []byte, texts map[string]string, ok bool) {
	if o.reading == nil || len(sent) > shortBody { // a long one takes memory only when its bounds are checked
		return nil, nil, false
	}
	r := plainReader{text: sent, out: make([]byte, 0, len(sent)), most: most, own: make(map[string]string)}
	if !r.value(o.reading) {
		return nil, nil, false
	}
	r.blank()
	return r.out, r.own, r.at == len(r.text)
}

func (r *plainReader) blank() {
	for r.at < len(r.text) && (r.text[r.at] == ' ' || r.text[r.at] == '\t' || r.text[r.at] == '\r' || r.text[r.at] == '\n') {
		r.at++
	}
}

// skip passes a byte, if it is the next one after blanks.
func (r *plainReader) skip(next byte) bool {
	r.blank()
	if r.at == len(r.text) || r.text[r.at] != next {
		return false
	}
	r.at++
	return true
}

func (r *plainReader) value(is *reading) bool {
	if is == nil {
		return false
	}
	switch is.kind {
	case "object":
		return r.object(is)
	case "array":
		return r.array(is)
	case "string":
		return r.string(is)
	case "integer":
		return r.integer(is)
	}
	return r.boolean()
}

// field is where a field is in the canonical form.
type field struct {
	name       string
	begin, end int
}

func (r *plainReader) object(is *reading) bool {
	if !r.skip('{') {
		return false
	}
	var there [16]field
	members, begin := there[:0], len(r.out)
	r.out = append(r.out, '{')
	for n := 0; !r.skip('}'); n++ {
		if n > 0 && !r.skip(',') {
			return false
		}
		raw, ok := r.quoted()
		if !ok || !r.skip(':') {
			return false
		}
		if slices.ContainsFunc(members, func(m field) bool { return m.name == string(raw) }) {
			return false
		}
		m := field{name: string(raw), begin: len(r.out)}
		r.out = append(append(append(r.out, '"'), raw...), '"', ':')
		value := len(r.out)
		r.path = append(r.path, m.name)
		inner := is.fields[m.name] // nil: not known, or not plain
		if !r.value(inner) {
			return false
		}
		if r.path = r.path[:len(r.path)-1]; len(r.path) == 0 && inner.kind == "string" {
			r.own[m.name] = string(r.out[value+1 : len(r.out)-1])
		}
		m.end = len(r.out)
		r.out = append(r.out, ',')
		members = append(members, m)
	}
	r.out = append(bytes.TrimSuffix(r.out, []byte(",")), '}')
	r.sort(members, begin)
	return len(members) >= is.min && is.complete(members)
}

// sort writes the members of an object, which begins at a place, in their order.
func (r *plainReader) sort(members []field, begin int) {
	byName := func(a, b field) int { return bytes.Compare([]byte(a.name), []byte(b.name)) }
	if slices.IsSortedFunc(members, byName) {
		return
	}
	written := bytes.Clone(r.out[begin:])
	slices.SortFunc(members, byName)
	r.out = r.out[:begin]
	for i, m := range members {
		if r.out = append(r.out, ','); i == 0 {
			r.out[begin] = '{'
		}
		r.out = append(r.out, written[m.begin-begin:m.end-begin]...)
	}
	r.out = append(r.out, '}')
}

// complete tells whether an object has the fields that it must have.
func (is *reading) complete(members []field) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(members, func(m field) bool { return m.name == name })
	}
	for _, name := range is.required {
		if !has(name) {
			return false
		}
	}
	found := 0
	for _, way := range is.ways {
		if has(way) {
			found++
		}
	}
	for name, needed := range is.dependent {
		if has(name) && slices.ContainsFunc(needed, func(other string) bool { return !has(other) }) {
			return false
		}
	}
	return is.ways == nil || found == 1
}

func (r *plainReader) array(is *reading) bool {
	if !r.skip('[') {
		return false
	}
	most := is.max
	if bound, ok := r.most[join(r.path)]; len(r.most) > 0 && ok {
		most = min(most, bound)
	}
	var seen map[string]bool
	if is.unique {
		seen = make(map[string]bool)
	}
	r.out = append(r.out, '[')
	n := 0
	for ; !r.skip(']'); n++ {
		if n > 0 {
			if !r.skip(',') {
				return false
			}
			r.out = append(r.out, ',')
		}
		begin := len(r.out)
		r.path = append(r.path, strconv.Itoa(n))
		if n == most || !r.value(is.element) {
			return false
		}
		r.path = r.path[:len(r.path)-1]
		if text := string(r.out[begin:]); seen[text] {
			return false
		} else if is.unique {
			seen[text] = true
		}
	}
	r.out = append(r.out, ']')
	return n >= is.min
}

// quoted passes a string without escapes and control characters, and returns what stands
// between its quotes.
func (r *plainReader) quoted() (raw []byte, ok bool) {
	if !r.skip('"') {
		return nil, false
	}
	begin := r.at
	for ; r.at < len(r.text) && r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' || r.text[r.at] < ' ' {
			return nil, false
		}
	}
	if r.at == len(r.text) {
		return nil, false
	}
	r.at++
	return r.text[begin : r.at-1], true
}

func (r *plainReader) string(is *reading) bool {
	raw, ok := r.quoted()
	text := string(raw)
	if !ok || !is.accepts(text) {
		return false
	}
	r.out = append(append(append(r.out, '"'), spelled(is.schema, text)...), '"')
	return true
}

// accepts tells whether a text is what a schema of texts says.
func (is *reading) accepts(text string) bool {
	length := utf8.RuneCountInString(text)
	return is.kind == "string" && utf8.ValidString(text) && length >= is.min && length <= is.max &&
		(is.enum == nil || slices.Contains(is.enum, text)) && (is.pattern == nil || is.pattern.MatchString(text)) && (is.format == nil || is.format(text) == nil)
}

func (r *plainReader) integer(is *reading) bool {
	r.blank()
	begin := r.at
	for r.at < len(r.text) && (r.text[r.at] >= '0' && r.text[r.at] <= '9' || r.text[r.at] == '-') {
		r.at++
	}
	raw := r.text[begin:r.at]
	number, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || number < is.least || number > is.most {
		return false
	}
	begin = len(r.out)
	r.out = strconv.AppendInt(r.out, number, 10)
	return bytes.Equal(r.out[begin:], raw)
}

func (r *plainReader) boolean() bool {
	r.blank()
	for _, word := range []string{"true", "false"} {
		if bytes.HasPrefix(r.text[r.at:], []byte(word)) {
			r.at += len(word)
			r.out = append(r.out, word...)
			return true
		}
	}
	return false
}
