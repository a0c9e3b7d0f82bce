package fairdraw

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
)

// MaxDocument bounds the length of a document, in bytes.
const MaxDocument = 256 << 20

// bounded is a reader that fails once it has read more than a document may have.
type bounded struct {
	r    io.Reader
	left int // bytes
}

// Read reads, and fails once the document is too long.
func (b *bounded) Read(into []byte) (int, error) {
	n, err := b.r.Read(into)
	if b.left -= n; b.left < 0 {
		return 0, malformed("", "is longer than %d bytes", MaxDocument)
	}
	return n, err //nolint:wrapcheck // it is the reader's
}

// maxMember bounds what one member of a document, except its list of sold positions, may
// take in memory, in bytes: a document comes from anywhere.
const maxMember = 16 << 20

// member is a member of a document and the pointer to its value. The list of sold positions has
// none: it is read and written line by line.
type member struct {
	name  string
	value any
}

// membersOf returns the members of a document in canonical order: the fields of the struct that
// document points to, and the list of sold positions.
func membersOf(document any) []member {
	fields := reflect.ValueOf(document).Elem()
	members := []member{{name: "sold"}}
	for i := range fields.NumField() {
		members = append(members, member{fields.Type().Field(i).Tag.Get("json"), fields.Field(i).Addr().Interface()})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return members
}

// readDocument reads a document, and passes each of its sold positions to each.
func readDocument(r io.Reader, document any, each func(SoldLine) error) error {
	s := &scanner{r: bufio.NewReaderSize(&bounded{r, MaxDocument}, 64<<10)}
	open := "{"
	for _, m := range membersOf(document) {
		if err := s.expect("", fmt.Sprintf("%s%q:", open, m.name)); err != nil {
			return err
		}
		open = ","
		if m.value == nil {
			if err := s.sold(each); err != nil {
				return err
			}
			continue
		}
		raw, err := s.value(m.name)
		if err != nil {
			return err
		}
		if rules, ok := m.value.(*json.RawMessage); ok {
			*rules, err = raw, isCanonicalObject(raw)
		} else {
			err = decodeCanonical(raw, m.value)
		}
		if err != nil {
			return malformed(m.name, "%s", err)
		}
	}
	if err := s.expect("", "}"); err != nil {
		return err
	}
	if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
		return cmp.Or(err, malformed("", "does not end with its last brace"))
	}
	return nil
}

// writeDocument writes a document, unless a value of it is invalid. It checks all values but the
// list before its first byte.
func writeDocument(w io.Writer, document any, invalid error, sold iter.Seq2[SoldLine, error]) error {
	if invalid != nil {
		return invalid
	}
	var head, tail []byte // before the list, and after it
	text := &head
	for i, m := range membersOf(document) {
		*text = fmt.Appendf(*text, `,"%s":`, m.name)
		if i == 0 {
			(*text)[0] = '{'
		}
		if m.value == nil {
			head, tail, text = append(head, '['), []byte{']'}, &tail
			continue
		}
		if rules, ok := m.value.(*json.RawMessage); ok {
			if err := isCanonicalObject(*rules); err != nil {
				return malformed(m.name, "%s", err)
			}
		}
		value, err := canonical(m.value)
		if err != nil {
			return err
		}
		*text = append(*text, value...)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	next := append(make([]byte, 0, len(head)+maxLine), head...) // what is not written yet
	for l, err := range sold {
		if err == nil {
			err = l.checkValues()
		}
		if err != nil {
			return fmt.Errorf("the sold list: %w", err)
		}
		if _, err := out.Write(l.appendTo(next)); err != nil {
			return err
		}
		next = append(next[:0], ',')
	}
	if len(next) == 1 {
		next = nil // no comma after the last line
	}
	if _, err := out.Write(append(append(next, tail...), '}')); err != nil {
		return err
	}
	return out.Flush()
}

// scanner reads a document from its front. Of JSON it knows only where a value ends; the
// caller decides whether the value is well-formed.
type scanner struct {
	r       *bufio.Reader
	spelled []byte // a line, written to compare it
}

// value reads the text of one JSON value, at most maxMember bytes.
func (s *scanner) value(member string) (text []byte, err error) {
	depth, quoted, escaped := 0, false, false
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return nil, ended(err)
		}
		if len(text) == maxMember {
			return nil, malformed(member, "is longer than %d bytes", maxMember)
		}
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if depth < 0 || (depth == 0 && (c == ',' || c == ':') && !quoted) {
			return text, s.r.UnreadByte() // a number or literal ended before
		}
		text = append(text, c)
		if depth == 0 && !quoted && (c == '"' || c == '}' || c == ']') {
			return text, nil
		}
	}
}

// sold reads the list of sold positions.
func (s *scanner) sold(each func(SoldLine) error) error {
	if err := s.expect("sold", "["); err != nil {
		return err
	}
	if next, err := s.r.Peek(1); err == nil && next[0] == ']' {
		return s.expect("sold", "]")
	}
	for i := 0; ; i++ {
		line, err := s.line(i)
		if err != nil {
			return err
		}
		if err := each(line); err != nil {
			return err
		}
		if next, err := s.r.Peek(1); err == nil && next[0] == ']' {
			return s.expect("sold", "]")
		}
		if err := s.expect("sold", ","); err != nil {
			return err
		}
	}
}

// expect reads what must stand next.
func (s *scanner) expect(member, want string) error {
	got, err := s.r.Peek(len(want))
	switch {
	case string(got) == want:
		_, err = s.r.Discard(len(want))
		return err //nolint:wrapcheck // there is none: it was peeked
	case err != nil && strings.HasPrefix(want, string(got)):
		return ended(err)
	}
	return malformed(member, "has %q where %q must stand", got, want)
}

// ended turns the end of the input into what is wrong with the document.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return malformed("", "ends before its end")
	}
	return fmt.Errorf("reading: %w", err)
}
