package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"triprize/internal/domain/fault"
)

// The bounds of a body where its schema sets none.
const (
	maxDepth    = 16
	maxElements = 1000
	maxText     = 1024 // characters
	maxDigits   = 64   // bytes of a number
)

// checkBounds checks what makes a body expensive before anything is made of it: the
// depth, how many elements an array has, which fields an object has and how often,
// the lengths of texts, and the numbers. It remembers nothing of what it passes, so
// a body costs no more than its own length. body must be valid JSON. unknown are the
// fields that an object may not have, exceeded is everything else.
func (o *Operation) checkBounds(body []byte, most map[string]int) (unknown, exceeded []fault.Field) {
	s := scanner{text: body, operation: o, most: most}
	s.value(o.body)
	return s.unknown, s.exceeded
}

// scanner walks through valid JSON. It stops at maxFaults.
type scanner struct {
	text      []byte
	at        int
	path      []string
	unknown   []fault.Field
	exceeded  []fault.Field
	operation *Operation
	most      map[string]int // elements of some arrays, by pointer
}

func (s *scanner) full() bool { return len(s.unknown)+len(s.exceeded) >= maxFaults }

func (s *scanner) fault(detail string) { s.add(&s.exceeded, detail) }

func (s *scanner) add(faults *[]fault.Field, detail string) {
	if !s.full() {
		*faults = append(*faults, fault.Field{Pointer: join(s.path), Detail: detail})
	}
}

// inside does something one step further down.
func (s *scanner) inside(step string, do func()) {
	s.path = append(s.path, step)
	do()
	s.path = s.path[:len(s.path)-1]
}

// value checks the next value, whose schema may be nil: not known.
func (s *scanner) value(schema *jsonschema.Schema) {
	s.blank()
	schema = single(schema)
	switch c := s.text[s.at]; {
	case c == '{' || c == '[':
		s.container(schema, c)
	case c == '"':
		most := maxText
		if schema != nil && schema.MaxLength != nil {
			most = *schema.MaxLength
		}
		if text := s.string(); len(text) > most && characters(text) > most {
			s.fault(s.operation.sentence(&kind.MaxLength{Want: most}))
		}
	case c == '-' || c >= '0' && c <= '9':
		if detail := inexact(s.word()); detail != "" {
			s.fault(detail)
		}
	default:
		s.word()
	}
}

// container checks an array or object, and skips one that must not be there.
func (s *scanner) container(schema *jsonschema.Schema, open byte) {
	got, check := "array", s.array
	if open == '{' {
		got, check = "object", s.object
	}
	s.at++
	switch {
	case len(s.path) >= maxDepth:
		s.fault("is nested too deeply")
		s.leave()
	case schema != nil && schema.Types != nil && !slices.Contains(schema.Types.ToStrings(), got):
		s.fault(s.operation.sentence(&kind.Type{Got: got, Want: schema.Types.ToStrings()}))
		s.leave()
	default:
		check(schema)
	}
}

func (s *scanner) array(schema *jsonschema.Schema) {
	most := maxElements
	if schema != nil && schema.MaxItems != nil {
		most = *schema.MaxItems
	}
	if len(s.most) > 0 {
		most = min(most, cmp.Or(s.most[join(s.path)], most))
	}
	begin := s.at
	if s.longer(most) {
		s.fault(s.operation.sentence(&kind.MaxItems{Want: most}))
		s.leave()
		return
	}
	s.at = begin
	for n := 0; s.next(']'); n++ {
		s.inside(strconv.Itoa(n), func() { s.value(elements(schema)) })
	}
}

// longer tells whether the array that the scanner is in has more elements than most.
// It looks no further.
func (s *scanner) longer(most int) bool {
	n := 0
	for n <= most && s.next(']') {
		s.skip()
		n++
	}
	return n > most
}

func (s *scanner) object(schema *jsonschema.Schema) {
	var seen []string
	for s.next('}') {
		raw := s.string()
		s.blank()
		s.at++ // the colon
		if len(raw) > 6*maxName || len(seen) >= maxElements {
			s.fault("has a field whose name is too long to be known")
			s.leave()
			return
		}
		name := unquoted(raw)
		property, known := propertyOf(schema, name)
		s.inside(name, func() {
			switch {
			case slices.Contains(seen, name):
				s.fault("is there twice")
				s.skip()
			case !known:
				s.add(&s.unknown, "is not a known field")
				s.skip()
			default:
				s.value(property)
			}
		})
		seen = append(seen, name)
	}
}

// next goes to the next element of a container, or past its end: closing.
func (s *scanner) next(closing byte) bool {
	if s.full() { // nothing is looked at any more
		return false
	}
	s.blank()
	if s.text[s.at] == ',' {
		s.at++
		s.blank()
	}
	if s.text[s.at] == closing {
		s.at++
		return false
	}
	return true
}

// skip passes a value without a look at it.
func (s *scanner) skip() {
	s.blank()
	switch c := s.text[s.at]; c {
	case '{', '[':
		s.at++
		s.leave()
	case '"':
		s.string()
	default:
		s.word()
	}
}

// leave passes the rest of the container that the scanner is in.
func (s *scanner) leave() {
	for depth := 1; depth > 0; {
		switch s.text[s.at] {
		case '"':
			s.string()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.at++
	}
}

func (s *scanner) blank() {
	for s.text[s.at] == ' ' || s.text[s.at] == '\t' || s.text[s.at] == '\r' || s.text[s.at] == '\n' {
		s.at++
	}
}

// string returns what stands between the quotes of a string.
func (s *scanner) string() []byte {
	begin := s.at + 1
	for s.at = begin; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.text[begin : s.at-1]
}

// word returns a number, true, false or null.
func (s *scanner) word() []byte {
	begin := s.at
	for s.at < len(s.text) && bytes.IndexByte([]byte(" \t\r\n,]}"), s.text[s.at]) < 0 {
		s.at++
	}
	return s.text[begin:s.at]
}

// characters counts those of a string between its quotes. Two escapes of a
// surrogate pair are one character.
func characters(raw []byte) (n int) {
	for i := 0; i < len(raw); n++ {
		switch {
		case raw[i] != '\\':
			_, width := utf8.DecodeRune(raw[i:])
			i += width
		case raw[i+1] != 'u':
			i += 2
		case highSurrogate(raw[i:]) && i+12 <= len(raw) && raw[i+6] == '\\' && raw[i+7] == 'u':
			i += 12
		default:
			i += 6
		}
	}
	return n
}

func highSurrogate(escape []byte) bool {
	code, err := strconv.ParseUint(string(escape[2:6]), 16, 16)
	return err == nil && code >= 0xd800 && code < 0xdc00
}

// unquoted returns the text of a string that stood between quotes.
func unquoted(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	var text string
	_ = json.Unmarshal(slices.Concat([]byte{'"'}, raw, []byte{'"'}), &text) // it is valid
	return text
}
