package fairdraw

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

// scanner reads a document from its front, member by member. It knows of JSON only where a
// value ends; the caller decides whether the value is well-formed.
type scanner struct {
	r    *bufio.Reader
	seen []string // names of members
}

func newScanner(r io.Reader) *scanner {
	return &scanner{r: bufio.NewReaderSize(&bounded{r, MaxDocument}, 64<<10)}
}

// MaxDocument bounds the length of a document, in bytes.
const MaxDocument = 256 << 20

// bounded refuses what is longer than a document may be.
type bounded struct {
	r    io.Reader
	left int // bytes
}

// Read reads on.
func (b *bounded) Read(into []byte) (int, error) {
	n, err := b.r.Read(into)
	if b.left -= n; b.left < 0 {
		return 0, malformed("", "is longer than %d bytes", MaxDocument)
	}
	return n, err //nolint:wrapcheck // it is the reader's
}

// name reads what stands before the value of member i: its brace or comma, name and colon.
func (s *scanner) name(members []string, i int) error {
	want := members[i]
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
	switch {
	case !isString:
		return malformed("", "has %q where the name of a member must stand", excerpt(raw))
	case slices.Contains(s.seen, string(name)):
		return malformed("", "has the member %q twice", name)
	case !slices.Contains(members, string(name)):
		return malformed("", "has a member %q, which is unknown", excerpt(name))
	case string(name) != want:
		return malformed("", "lacks the member %q, or has it behind %q", want, name)
	}
	s.seen = append(s.seen, want)
	return s.expect("", ':')
}

// member reads the value of a member.
func (s *scanner) member(name string, into any) error {
	raw, err := s.value(name)
	if err != nil {
		return err
	}
	if err := decodeCanonical(raw, into); err != nil {
		return malformed(name, "%s", err)
	}
	return nil
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
		if name := string(bytes.Trim(raw, `"`)); slices.Contains(s.seen, name) {
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
