package fairdraw

import (
	"bufio"
	"bytes"
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
func readDocument(r io.Reader, members []member, each func(SoldLine) error) error {
	s := &scanner{r: bufio.NewReaderSize(&bounded{r, MaxDocument}, 64<<10), members: members}
	for i, m := range members {
		if err := s.name(i); err != nil {
			return err
		}
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
	return s.end()
}

// writeDocument writes a document. It checks all values but the list before its first byte.
func writeDocument(w io.Writer, members []member, sold iter.Seq2[SoldLine, error]) error {
	var head, tail []byte // before the list, and after it
	text := &head
	for i, m := range members {
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

// scanner reads a document from its front, member by member. It knows of JSON only where a
// value ends; the caller decides whether the value is well-formed.
type scanner struct {
	r       *bufio.Reader
	members []member
	spelled []byte // a line, written to compare it
}

// name reads what stands before the value of member i: its brace or comma, name and colon.
func (s *scanner) name(i int) error {
	want := s.members[i].name
	open := byte('{')
	if i > 0 {
		open = ','
		if next, err := s.peek(); err == nil && next == '}' {
			return malformed("", "lacks the member %q", want)
		}
	}
	if err := s.expect("", open); err != nil {
		return err
	}
	raw, err := s.value("")
	if err != nil {
		return err
	}
	name, isString := bytes.CutPrefix(bytes.TrimSuffix(raw, []byte{'"'}), []byte{'"'})
	switch at := s.index(name); {
	case !isString:
		return malformed("", "has %q where the name of a member must stand", excerpt(raw))
	case at < 0:
		return malformed("", "has a member %q, which is unknown", excerpt(name))
	case at < i:
		return malformed("", "has the member %q twice", name)
	case at > i:
		return malformed("", "lacks the member %q, or has it behind %q", want, name)
	}
	return s.expect("", ':')
}

// index returns which member has a name; -1: none.
func (s *scanner) index(name []byte) int {
	return slices.IndexFunc(s.members, func(m member) bool { return m.name == string(name) })
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

// end returns nil if the document ends with its brace.
func (s *scanner) end() error {
	if next, err := s.peek(); err == nil && next == ',' {
		if err := s.skip(); err != nil {
			return err
		}
		raw, err := s.value("")
		if err != nil {
			return err
		}
		if name := bytes.Trim(raw, `"`); s.index(name) >= 0 {
			return malformed("", "has the member %q twice", name)
		}
		return malformed("", "has a member %s, which is unknown", excerpt(raw))
	}
	if err := s.expect("", '}'); err != nil {
		return err
	}
	if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
		if err == nil {
			return malformed("", "does not end with its last brace")
		}
		return err
	}
	return nil
}

// sold reads the list of sold positions.
func (s *scanner) sold(each func(SoldLine) error) error {
	if err := s.expect("sold", '['); err != nil {
		return err
	}
	if next, err := s.peek(); err != nil || next == ']' {
		return errors.Join(err, s.skip())
	}
	for i := 0; ; i++ {
		line, err := s.line(i)
		if err != nil {
			return err
		}
		if err := each(line); err != nil {
			return err
		}
		if next, err := s.peek(); err != nil || next == ']' {
			return errors.Join(err, s.skip())
		}
		if err := s.expect("sold", ','); err != nil {
			return err
		}
	}
}

func (s *scanner) expect(member string, want byte) error {
	got, err := s.r.ReadByte()
	if err != nil {
		return ended(err)
	}
	if got != want {
		return malformed(member, "has %q where %q must stand", got, want)
	}
	return nil
}

func (s *scanner) peek() (byte, error) {
	next, err := s.r.Peek(1)
	if err != nil {
		return 0, ended(err)
	}
	return next[0], nil
}

func (s *scanner) skip() error {
	_, err := s.r.ReadByte()
	return err //nolint:wrapcheck // the caller has peeked
}

// ended turns the end of the input into what is wrong with the document.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return malformed("", "ends before its end")
	}
	return fmt.Errorf("reading: %w", err)
}
