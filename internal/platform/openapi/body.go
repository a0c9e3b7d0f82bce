package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"triprize/internal/domain/fault"
)

// errNotJSON means that a body is not JSON, or has no canonical form.
var errNotJSON = errors.New("the body is not one valid JSON value")

const (
	// maxFaults bounds the faults in one answer.
	maxFaults = 20
	// shortBody is the maximum length of a body with unknown fields whose other faults are reported too.
	shortBody = 8 << 10
	// longestCharacter is the maximum length of a character in a string: two escapes.
	longestCharacter = len(`\ud83d\ude00`)
	// maxName bounds the names of unknown fields and parameters in answers, in bytes.
	maxName = 128
)

// ReadBody checks a JSON body. It returns the canonical form (RFC 8785) and the texts of the outermost object, or the
// faults by JSON pointer. In the canonical form UUIDs are in lower case, times in upper case, and optional fields that
// are null are removed, except in a PATCH. If the body exceeds a limit, or is long and has unknown fields, other
// faults are not reported. limits lowers the contract's limits for the elements of some arrays, by JSON pointer. An
// error means that the body is not JSON, or has no canonical form because of invalid UTF-8.
func (o *Operation) ReadBody(sent []byte, limits map[string]int) (canonical []byte, texts map[string]string, faults []fault.Field, err error) {
	if !utf8.Valid(sent) || !json.Valid(sent) { // which also bounds the depth
		return nil, nil, nil, errNotJSON
	}
	r := bodyReader{text: sent, out: make([]byte, 0, min(len(sent), shortBody)), isPatch: o.Method == http.MethodPatch, limits: limits, texts: make(map[string]string)}
	r.value(o.body)
	switch {
	case len(r.exceeded) > 0 || len(r.unknown) > 0 && (len(sent) > shortBody || r.isBroken):
		return nil, nil, sorted(append(r.unknown, r.exceeded...)), nil
	case r.isBroken:
		return nil, nil, nil, errNotJSON
	}
	return r.out, r.texts, sorted(append(r.unknown, r.wrong...)), nil
}

// sorted returns the first faults of a body, sorted by pointer.
func sorted(faults []fault.Field) []fault.Field {
	faults = faults[:min(len(faults), maxFaults)]
	slices.SortStableFunc(faults, func(a, b fault.Field) int { return strings.Compare(a.Pointer, b.Pointer) })
	return faults
}

// bodyReader reads a body of valid JSON once, checks it and writes its canonical form. It checks depth, numbers of
// elements, fields, lengths of texts and numbers before it converts them, so that the cost is bounded by the length of
// the body. It stops after maxFaults of these faults.
type bodyReader struct {
	text     []byte
	at       int
	out      []byte
	path     []string
	isPatch  bool
	limits   map[string]int    // elements of some arrays, by pointer
	texts    map[string]string // of the outermost object
	unknown  []fault.Field     // fields that an object may not have
	exceeded []fault.Field     // bounds
	wrong    []fault.Field     // everything else
	isBroken bool              // a text has half of a surrogate pair
}

func (r *bodyReader) isFull() bool { return len(r.unknown)+len(r.exceeded) >= maxFaults }

func (r *bodyReader) add(faults *[]fault.Field, details ...string) {
	if len(*faults) < maxFaults && !r.isFull() {
		*faults = append(*faults, r.faults("", details...)...)
		*faults = (*faults)[:min(len(*faults), maxFaults)]
	}
}

// faults returns faults of the current value, or of a field of it.
func (r *bodyReader) faults(field string, details ...string) (faults []fault.Field) {
	for _, detail := range details {
		faults = append(faults, fault.Field{Pointer: join(r.path) + field, Detail: detail})
	}
	return faults
}

// value reads the next value.
func (r *bodyReader) value(is *rule) {
	r.blank()
	switch c := r.text[r.at]; {
	case is == nil:
		begin := r.at
		r.skip()
		r.out = append(r.out, r.canonical(r.text[begin:r.at])...)
	case c == '{' && is.kind == "object":
		r.object(is)
	case c == '[' && is.kind == "array":
		r.array(is)
	case c == '{' || c == '[':
		r.add(&r.exceeded, is.mismatch(map[byte]string{'{': "object", '[': "array"}[c]))
		r.skip()
	case c == '"':
		r.string(is)
	case c == '-' || c >= '0' && c <= '9':
		r.number(is)
	case c == 'n' && !is.orNull:
		r.word()
		r.add(&r.wrong, is.mismatch("null"))
	case c != 'n' && is.kind != "boolean":
		r.word()
		r.add(&r.wrong, is.mismatch("boolean"))
	default:
		r.out = append(r.out, r.word()...)
	}
}

// canonical returns the canonical form of a value.
func (r *bodyReader) canonical(value []byte) []byte {
	text, err := jcs.Transform(slices.Concat([]byte("["), value, []byte("]")))
	if r.isBroken = r.isBroken || err != nil; err != nil {
		return nil
	}
	return text[1 : len(text)-1]
}

func (r *bodyReader) array(is *rule) {
	limit := is.max
	if len(r.limits) > 0 {
		limit = min(limit, cmp.Or(r.limits[join(r.path)], limit))
	}
	r.at++
	first := r.at
	if r.isLonger(limit) {
		r.add(&r.exceeded, "must have at most "+count(limit, "element"))
		r.leave()
		return
	}
	r.at = first
	var own []string
	var seen map[string]bool
	if is.unique {
		seen = make(map[string]bool)
	}
	before, n := len(r.wrong), 0
	r.out = append(r.out, '[')
	for ; r.next(']'); n++ {
		if n > 0 {
			r.out = append(r.out, ',')
		}
		begin, from, known := len(r.out), r.at, len(r.unknown)+len(r.wrong)
		r.path = append(r.path, strconv.Itoa(n))
		r.value(is.element)
		r.path = r.path[:len(r.path)-1]
		if !is.unique {
			continue
		}
		element := r.out[begin:]
		if len(element) == 0 || len(r.unknown)+len(r.wrong) > known { // not all of it is written
			element = bytes.TrimSpace(r.text[from:r.at])
		}
		if seen[string(element)] && own == nil {
			own = []string{"must not have the same element twice"}
		}
		seen[string(element)] = true
	}
	r.out = append(r.out, ']')
	r.insert(before, r.faults("", append(is.ofCount(n, "element"), own...)...))
}

// isLonger reports whether the current array has more than limit elements. It reads no further.
func (r *bodyReader) isLonger(limit int) bool {
	n := 0
	for n <= limit && r.next(']') {
		r.skip()
		n++
	}
	return n > limit
}

// insert adds the faults of a container before those of its elements.
func (r *bodyReader) insert(before int, own []fault.Field) {
	r.wrong = slices.Insert(r.wrong, before, own...)
	r.wrong = r.wrong[:min(len(r.wrong), maxFaults)]
}

// field is the place of a field in the canonical form.
type field struct {
	name       string
	begin, end int
}

func (r *bodyReader) object(is *rule) {
	var there [16]field
	members, begin, before, n := there[:0], len(r.out), len(r.wrong), 0
	var others []string // fields that are null, or not known
	r.out = append(r.out, '{')
	for r.at++; r.next('}'); {
		raw := r.quoted()
		r.blank()
		r.at++ // the colon
		r.blank()
		if len(raw) > 6*maxName || len(members)+len(others) >= maxElements {
			r.add(&r.exceeded, "has a field with a name that is too long")
			r.leave()
			return
		}
		name, written := r.unquoted(raw)
		of, isNamed := is.fields[name]
		if !isNamed {
			of = is.others
		}
		r.path = append(r.path, name)
		switch {
		case has(members, name) || slices.Contains(others, name):
			r.add(&r.exceeded, "was sent twice")
			r.skip()
		case !isNamed && !is.isOpen:
			r.add(&r.unknown, "is not a known field")
			r.skip()
			others = append(others, name)
			n++
		case isNamed && r.text[r.at] == 'n' && !r.isPatch && !slices.Contains(is.required, name):
			r.word()
			others = append(others, name)
		default:
			m := field{name: name, begin: len(r.out)}
			r.out = append(append(append(r.out, '"'), written...), '"', ':')
			r.value(of)
			m.end = len(r.out)
			r.out = append(r.out, ',')
			members = append(members, m)
		}
		r.path = r.path[:len(r.path)-1]
	}
	r.out = append(bytes.TrimSuffix(r.out, []byte(",")), '}')
	if !is.isOpen {
		r.sort(members, begin)
	} else if len(r.unknown)+len(r.exceeded)+len(r.wrong) == 0 && !r.isBroken {
		r.out = append(r.out[:begin], r.canonical(r.out[begin:])...)
	}
	r.insert(before, append(r.faults("", is.ofCount(n+len(members), "field")...), r.fields(is, members)...))
}

// sort sorts the written members of an object that starts at begin. Their names are ASCII.
func (r *bodyReader) sort(members []field, begin int) {
	byName := func(a, b field) int { return strings.Compare(a.name, b.name) }
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

func has(members []field, name string) bool {
	return slices.ContainsFunc(members, func(m field) bool { return m.name == name })
}

// fields checks required fields, names, and fields that require or exclude others.
func (r *bodyReader) fields(is *rule, members []field) (own []fault.Field) {
	for _, name := range is.required {
		if !has(members, name) {
			own = append(own, r.faults(join([]string{name}), "is required")...)
		}
	}
	for _, m := range members {
		if is.names == nil {
			break
		}
		for _, detail := range is.names.ofText(m.name) {
			own = append(own, r.faults(join([]string{m.name}), "its name "+detail)...)
		}
	}
	found := 0
	for _, way := range is.ways {
		if has(members, way) {
			found++
		}
	}
	if last := len(is.ways) - 1; last > 0 && found != 1 {
		own = append(own, r.faults("", "must have exactly one of "+strings.Join(is.ways[:last], ", ")+" and "+is.ways[last])...)
	}
	for name, wanted := range is.dependent {
		for _, needed := range wanted {
			if has(members, name) && !has(members, needed) {
				own = append(own, r.faults(join([]string{name}), "goes with "+needed+" only")...)
			}
		}
	}
	return own
}

func (r *bodyReader) string(is *rule) {
	raw, limit := r.quoted(), maxText
	if is.kind == "string" && is.max < math.MaxInt {
		limit = is.max
	}
	var text string
	var written []byte
	if len(raw) <= longestCharacter*limit { // otherwise it has too many characters
		text, written = r.unquoted(raw)
	}
	if len(raw) > longestCharacter*limit || utf8.RuneCountInString(text) > limit {
		r.add(&r.exceeded, "must have at most "+count(limit, "character"))
		return
	}
	r.add(&r.wrong, is.ofText(text)...)
	if is.format != "" { // it has no escapes
		text = is.spelled(text)
		written = []byte(text)
	}
	if r.out = append(append(append(r.out, '"'), written...), '"'); len(r.path) == 1 {
		r.texts[r.path[0]] = text
	}
}

// maxWhole bounds whole numbers that a double represents exactly and whose canonical form has no exponent.
const maxWhole = 999_999_999_999_999

func (r *bodyReader) number(is *rule) {
	word := r.word()
	if len(word) > maxDigits {
		r.add(&r.exceeded, "has too many digits")
		return
	}
	if whole, err := strconv.ParseInt(string(word), 10, 64); err == nil && whole >= -maxWhole && whole <= maxWhole {
		r.add(&r.wrong, is.ofNumber(float64(whole))...)
		r.out = strconv.AppendInt(r.out, whole, 10) // -0 is 0
		return
	}
	if detail := inexact(word); detail != "" {
		r.add(&r.exceeded, detail)
		return
	}
	double, _ := strconv.ParseFloat(string(word), 64)
	r.add(&r.wrong, is.ofNumber(double)...)
	r.out = append(r.out, r.canonical(word)...)
}

// next moves to the next element of a container, or past its end.
func (r *bodyReader) next(closing byte) bool {
	if r.isFull() {
		return false
	}
	r.blank()
	if r.text[r.at] == ',' {
		r.at++
		r.blank()
	}
	if r.text[r.at] == closing {
		r.at++
		return false
	}
	return true
}

// skip skips a value.
func (r *bodyReader) skip() {
	r.blank()
	switch c := r.text[r.at]; c {
	case '{', '[':
		r.at++
		r.leave()
	case '"':
		r.quoted()
	default:
		r.word()
	}
}

// leave skips the rest of the current container.
func (r *bodyReader) leave() {
	for depth := 1; depth > 0; {
		switch r.text[r.at] {
		case '"':
			r.quoted()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		r.at++
	}
}

func (r *bodyReader) blank() {
	for r.text[r.at] == ' ' || r.text[r.at] == '\t' || r.text[r.at] == '\r' || r.text[r.at] == '\n' {
		r.at++
	}
}

// quoted reads a string and returns the raw text between its quotes.
func (r *bodyReader) quoted() []byte {
	begin := r.at + 1
	for r.at = begin; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			r.at++
		}
	}
	r.at++
	return r.text[begin : r.at-1]
}

// word reads a number, true, false or null.
func (r *bodyReader) word() []byte {
	begin := r.at
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n,]}", r.text[r.at]) < 0 {
		r.at++
	}
	return r.text[begin:r.at]
}

// unquoted decodes the raw text of a string, and returns its canonical form too.
func (r *bodyReader) unquoted(raw []byte) (text string, written []byte) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), raw
	}
	quoted := slices.Concat([]byte{'"'}, raw, []byte{'"'})
	var plain string
	_ = json.Unmarshal(quoted, &plain) // it is valid
	return plain, bytes.TrimPrefix(bytes.TrimSuffix(r.canonical(quoted), []byte(`"`)), []byte(`"`))
}

// inexact returns the fault of a JSON number whose value would change in canonical form, as a double; else "". 1.0 and
// 1e2 are only written differently; 0.99999999999999999999 would become 1.
func inexact(number []byte) string {
	double, err := strconv.ParseFloat(string(number), 64)
	if err != nil || math.IsInf(double, 0) {
		return "is too large"
	}
	canonical := strconv.FormatFloat(double, 'g', -1, 64)
	isExact := false
	if double == 0 { // a tiny number is no zero
		digits, _, _ := strings.Cut(strings.ToLower(string(number)), "e")
		isExact = strings.Trim(digits, "-.0") == ""
	} else if sent, ok := new(big.Rat).SetString(string(number)); ok {
		kept, _ := new(big.Rat).SetString(canonical)
		isExact = sent.Cmp(kept) == 0
	}
	if !isExact {
		return "cannot be represented exactly (it would become " + canonical + "): send fewer digits"
	}
	return ""
}

// inPointer escapes a name for a JSON pointer.
var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

// join returns a path as a JSON pointer.
func join(path []string) string {
	var b strings.Builder
	for _, part := range path {
		b.WriteString("/" + inPointer.Replace(part))
	}
	return b.String()
}
