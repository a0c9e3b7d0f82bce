package fairdraw

import (
	"bufio"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/google/uuid"
)

// maxLine bounds one sold position in a document, in bytes. The longest takes 203.
const maxLine = 1024

// line reads one sold position.
func (s *scanner) line(i int) (SoldLine, error) {
	text, err := s.r.ReadSlice('}')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return SoldLine{}, ended(err)
	}
	if len(text) > maxLine {
		return SoldLine{}, malformed("sold", "at %d: is longer than %d bytes", i, maxLine)
	}
	if line, ok := parseLine(text); ok {
		return line, nil
	}
	var line SoldLine
	if err := decodeCanonical(text, &line); err != nil {
		return SoldLine{}, malformed("sold", "at %d: %s", i, err)
	}
	return SoldLine{}, malformed("sold", "at %d: has a number that is no integer from 0 to 2^53 − 1", i)
}

// parseLine reads what SoldLine.appendTo writes, and nothing else.
func parseLine(text []byte) (l SoldLine, ok bool) {
	p := lineParser{rest: text}
	p.literal(`{"column":`)
	l.Column = p.integer()
	p.literal(`,"holder":"`)
	p.hex(l.Holder[:])
	p.literal(`","layer":`)
	l.Layer = p.integer()
	p.literal(`,"purchase_id":"`)
	l.PurchaseID = p.uuid()
	p.literal(`"}`)
	return l, !p.failed && len(p.rest) == 0
}

type lineParser struct {
	rest   []byte
	failed bool
}

// take returns the next n bytes, or fails and returns nil.
func (p *lineParser) take(n int) []byte {
	if p.failed || len(p.rest) < n {
		p.failed = true
		return nil
	}
	text := p.rest[:n]
	p.rest = p.rest[n:]
	return text
}

func (p *lineParser) literal(want string) {
	if string(p.take(len(want))) != want {
		p.failed = true
	}
}

func (p *lineParser) integer() int {
	n := 0
	for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
		n++
	}
	text := p.take(n)
	number, err := strconv.Atoi(string(text))
	if err != nil || number > MaxInteger || (n > 1 && text[0] == '0') {
		p.failed = true
	}
	return number
}

// hex fills b from hex digits in lower case.
func (p *lineParser) hex(b []byte) {
	text := p.take(hex.EncodedLen(len(b)))
	for _, c := range text {
		if c >= 'A' && c <= 'F' {
			p.failed = true
		}
	}
	if _, err := hex.Decode(b, text); err != nil {
		p.failed = true
	}
}

func (p *lineParser) uuid() (id uuid.UUID) {
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			p.literal("-")
		}
		p.hex(part)
	}
	return id
}
