package openapi

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"
)

// The limits of a body where its schema sets none.
const (
	maxElements = 1000
	maxText     = 1024 // characters
	maxDigits   = 64   // bytes of a number
)

// rule is a parsed schema; nil: any value.
type rule struct {
	kind   string // object, array, string, integer or boolean
	orNull bool

	fields    map[string]*rule
	isOpen    bool  // an object may have other fields
	others    *rule // of these
	names     *rule // of the names of all
	required  []string
	ways      []string // fields of which an object has exactly one
	dependent map[string][]string

	element  *rule
	unique   bool
	min, max int // fields, elements or characters

	enum     []string
	pattern  *regexp.Regexp
	sentence string // describes the pattern
	format   string

	least, greatest *float64
}

// schemaSource has the keywords that are checked. Others are an error, so that none is ignored.
type schemaSource struct {
	Ref                  string `yaml:"$ref"`
	Type                 any
	Properties           map[string]*schemaSource
	AdditionalProperties yaml.Node     `yaml:"additionalProperties"`
	PropertyNames        *schemaSource `yaml:"propertyNames"`
	Required             []string
	DependentRequired    map[string][]string `yaml:"dependentRequired"`
	MinProperties        int                 `yaml:"minProperties"`
	MaxProperties        int                 `yaml:"maxProperties"`
	Items                *schemaSource
	MinItems             int  `yaml:"minItems"`
	MaxItems             int  `yaml:"maxItems"`
	UniqueItems          bool `yaml:"uniqueItems"`
	MinLength            int  `yaml:"minLength"`
	MaxLength            int  `yaml:"maxLength"`
	Enum                 []string
	Pattern, Format      string
	Minimum, Maximum     *float64
	// Not has fields that exclude each other, in the form {not: {oneOf: [{required: [a]}, {required: [b]}]}}.
	// Unlike a bare oneOf, generators of types ignore it.
	Not *struct {
		Not struct {
			OneOf []struct{ Required []string } `yaml:"oneOf"`
		}
	}
	Rest map[string]any `yaml:",inline"`
}

var saysNothing = regexp.MustCompile(`^(description|title|default|examples?|deprecated|x-.*)$`)

// rule parses a schema and its references.
func (r *reader) rule(from *schemaSource) (is *rule, err error) {
	if from == nil {
		return nil, nil
	}
	for key := range from.Rest {
		if !saysNothing.MatchString(key) {
			return nil, fmt.Errorf("a schema has %s, which is not checked here", key)
		}
	}
	if from.Ref != "" {
		if !reflect.DeepEqual(*from, schemaSource{Ref: from.Ref, Rest: from.Rest}) {
			return nil, fmt.Errorf("beside %s nothing is checked here", from.Ref)
		}
		return r.named(strings.TrimPrefix(from.Ref, "#/components/schemas/"))
	}
	is = &rule{unique: from.UniqueItems, required: from.Required, dependent: from.DependentRequired, enum: from.Enum, format: from.Format,
		sentence: r.patterns[from.Pattern], least: from.Minimum, greatest: from.Maximum}
	switch types := from.Type.(type) {
	case string:
		is.kind = types
	case []any:
		if len(types) != 2 || types[1] != "null" {
			return nil, fmt.Errorf("a schema has the types %v: one, and perhaps null, can be checked", types)
		}
		is.kind, is.orNull = fmt.Sprint(types[0]), true
	}
	if is.enum != nil && is.kind != "string" {
		return nil, fmt.Errorf("a schema of the type %s has an enum, which is checked for texts only", is.kind)
	}
	bounds := func(least, greatest, otherwise int) {
		if is.min, is.max = least, greatest; greatest == 0 {
			is.max = otherwise
		}
	}
	switch is.kind {
	case "object":
		bounds(from.MinProperties, from.MaxProperties, maxElements)
		return is, r.object(is, from)
	case "array":
		bounds(from.MinItems, from.MaxItems, maxElements)
		is.element, err = r.rule(from.Items)
		return is, err
	case "string":
		bounds(from.MinLength, from.MaxLength, math.MaxInt)
		if from.Pattern != "" {
			is.pattern, err = regexp.Compile(from.Pattern)
		}
		if _, known := formats[is.format]; !known && is.format != "" {
			return nil, fmt.Errorf("a schema has the format %s, which is not checked here", is.format)
		}
		return is, err
	case "integer", "boolean":
		return is, nil
	}
	return nil, fmt.Errorf("a schema has the type %v, which is not checked here", from.Type)
}

// object parses the fields of an object's schema.
func (r *reader) object(is *rule, from *schemaSource) (err error) {
	is.fields = make(map[string]*rule, len(from.Properties))
	for name, property := range from.Properties {
		if is.fields[name], err = r.rule(property); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if is.names, err = r.rule(from.PropertyNames); err != nil {
		return err
	}
	if from.Not != nil {
		for _, way := range from.Not.Not.OneOf {
			is.ways = append(is.ways, way.Required...)
		}
		if len(is.ways) < 2 || len(is.ways) != len(from.Not.Not.OneOf) {
			return errors.New("not is for fields that exclude each other: {not: {oneOf: [{required: [a]}, {required: [b]}]}}")
		}
	}
	if is.isOpen = from.AdditionalProperties.Value != "false"; from.AdditionalProperties.Kind != yaml.MappingNode {
		return nil
	}
	var others schemaSource
	if err := from.AdditionalProperties.Decode(&others); err != nil {
		return err
	}
	is.others, err = r.rule(&others)
	return err
}

// named returns the rule of a schema in the components, which may be recursive.
func (r *reader) named(name string) (*rule, error) {
	if is, ok := r.rules[name]; ok {
		return is, nil
	}
	from, ok := r.schemas[name]
	if !ok {
		return nil, fmt.Errorf("there is no schema %s", name)
	}
	var source schemaSource
	if err := from.Decode(&source); err != nil {
		return nil, err
	}
	is := new(rule)
	r.rules[name] = is
	read, err := r.rule(&source)
	if err == nil {
		*is = *read
	}
	return is, err
}

// Member is a member of a body, as a form needs to know it.
type Member struct {
	Pointer      string
	Type, Format string // integer, boolean, string or array; of an object there are its members, if it names them
	Enum         []string
	Least        float64 // of a number
	Required     bool
}

// Members returns the members of an operation's body, and of the objects in it.
func (o *Operation) Members() []Member { return o.body.members("") }

func (is *rule) members(at string) (all []Member) {
	for name, of := range is.fields {
		if of.kind == "object" {
			all = append(all, of.members(at+"/"+name)...)
			continue
		}
		m := Member{Pointer: at + "/" + name, Type: of.kind, Format: of.format, Enum: of.enum, Required: slices.Contains(is.required, name)}
		if of.least != nil {
			m.Least = *of.least
		}
		all = append(all, m)
	}
	return all
}

// mismatch returns the fault of a value of another type.
func (is *rule) mismatch(got string) string {
	if is.orNull {
		return "must be null or " + is.kind + ", not " + got
	}
	return "must be " + is.kind + ", not " + got
}

// ofText returns the faults of a text.
func (is *rule) ofText(text string) (wrong []string) {
	switch {
	case is.kind != "string":
		return []string{is.mismatch("string")}
	case is.enum != nil && !slices.Contains(is.enum, text):
		return []string{"must be one of: " + strings.Join(is.enum, ", ")}
	case is.format != "" && !formats[is.format].fits(text):
		return []string{formats[is.format].sentence}
	}
	wrong = is.ofCount(utf8.RuneCountInString(text), "character")
	if is.pattern != nil && !is.pattern.MatchString(text) {
		if wrong = append(wrong, is.sentence); is.sentence == "" {
			wrong[len(wrong)-1] = "must match " + is.pattern.String()
		}
	}
	return wrong
}

// ofCount returns the faults of the number of fields, elements or characters.
func (is *rule) ofCount(n int, what string) []string {
	switch {
	case n < is.min:
		return []string{"must have at least " + count(is.min, what)}
	case n > is.max:
		return []string{"must have at most " + count(is.max, what)}
	}
	return nil
}

// ofNumber returns the faults of a number.
func (is *rule) ofNumber(number float64) []string {
	switch {
	case is.kind != "integer" || number != math.Trunc(number):
		return []string{is.mismatch("number")}
	case is.least != nil && number < *is.least:
		return []string{"must be at least " + strconv.FormatFloat(*is.least, 'f', -1, 64)}
	case is.greatest != nil && number > *is.greatest:
		return []string{"must be at most " + strconv.FormatFloat(*is.greatest, 'f', -1, 64)}
	}
	return nil
}

// spelled normalizes the case of a text whose format allows both.
func (is *rule) spelled(text string) string {
	switch is.format {
	case "uuid":
		return strings.ToLower(text)
	case "date-time":
		return strings.ToUpper(text)
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// formats are the formats of strings, with error texts.
var formats = map[string]struct {
	fits     func(text string) bool
	sentence string
}{
	"uuid":      {func(text string) bool { return len(text) == len(uuid.Nil.String()) && uuid.Validate(text) == nil }, "must be a UUID"},
	"date-time": {isTime, "must be a time like 2026-07-01T09:00:00Z (RFC 3339)"},
}

// dateTime is RFC 3339 without leap seconds, which time.Time cannot parse.
var dateTime = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)

func isTime(text string) bool {
	return dateTime.MatchString(text) && new(time.Time).UnmarshalText([]byte(strings.ToUpper(text))) == nil
}
