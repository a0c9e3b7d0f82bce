package httpconn

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Reason is why a request or a connection is rejected.
type Reason uint8

// The reasons.
const (
	fine           Reason = iota
	TooMany               // connections
	TooSlow               // the request did not arrive in time
	TooLarge              // the head of the request is too large
	BadRequestLine        // no method, target, version 1.1 or 1.0 and CR LF
	BadHeader             // a header line that is not: name, colon, value, CR LF
	BadLength             // a Content-Length that is not one number, or together with Transfer-Encoding
	LengthRequired        // a Transfer-Encoding: only Content-Length is accepted
	Repeated              // a header field that must be unique
)

// scanner parses one request: its head by RFC 9112, sections 2 to 6, then the length of its body.
type scanner struct {
	limit  int // bytes of a head
	seen   int // bytes of this head
	state  state
	line   []byte // the received part of an incomplete line
	fields uint   // bit set of the fields of single that the head has
	length int    // of the body
	left   int    // bytes of the body that have not arrived
}

type state uint8

const (
	atStart state = iota // an empty line may precede a request
	requestLine
	headerLine
	inBody
	over
)

// single are the header fields that a request may have only once, in lower case.
var single = [...]string{theLength: "content-length", theEncoding: "transfer-encoding", "host", "authorization", "content-type", "idempotency-key"}

const theLength, theEncoding = 0, 1

var cr, lf, crlf, blank, colon = []byte("\r"), []byte("\n"), []byte("\r\n"), []byte(" "), []byte(":")

// maxLength is the maximum Content-Length.
const maxLength = 1 << 50

func (s *scanner) reset()       { *s = scanner{limit: s.limit} }
func (s *scanner) fresh() bool  { return s.state == atStart && s.seen == 0 }
func (s *scanner) ended() bool  { return s.state == over }
func (s *scanner) inBody() bool { return s.state == inBody }

// scan parses bytes and returns how many belong to the request.
func (s *scanner) scan(p []byte) (taken int, reason Reason) {
	for taken < len(p) && s.state < inBody {
		piece := p[taken:]
		if end := bytes.IndexByte(piece, '\n'); end >= 0 {
			piece = piece[:end+1]
		}
		fits := piece[:min(len(piece), s.limit-s.seen)]
		s.seen += len(fits)
		line, from := fits, 0
		if len(s.line) > 0 || !bytes.HasSuffix(fits, lf) { // an incomplete line
			from = max(0, len(s.line)-1)
			s.line = append(s.line, fits...)
			line = s.line
		}
		switch {
		case !isText(line[from:]) && s.state < headerLine:
			return taken, BadRequestLine
		case !isText(line[from:]):
			return taken, BadHeader
		case len(fits) < len(piece):
			return taken, TooLarge
		}
		if taken += len(piece); bytes.HasSuffix(line, lf) {
			if reason := s.end(bytes.TrimSuffix(line, crlf)); reason != fine {
				return taken, reason
			}
			s.line = nil
		}
	}
	if s.state == inBody {
		n := min(s.left, len(p)-taken)
		taken += n
		if s.left -= n; s.left == 0 {
			s.state = over
		}
	}
	return taken, fine
}

// isText reports whether part of a line has no control characters except tabs and CR LF at its end.
func isText(part []byte) bool {
	text, ended := bytes.CutSuffix(part, crlf)
	if !ended {
		text = bytes.TrimSuffix(part, cr) // LF may follow
	}
	for _, b := range text {
		if b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// end parses a complete line.
func (s *scanner) end(line []byte) Reason {
	switch {
	case s.state == atStart && len(line) == 0:
		s.state = requestLine
		return fine
	case s.state < headerLine:
		s.state = headerLine
		method, rest, _ := bytes.Cut(line, blank)
		target, version, _ := bytes.Cut(rest, blank)
		if !isToken(method) || len(target) == 0 || bytes.IndexByte(target, '\t') >= 0 || string(version) != "HTTP/1.1" && string(version) != "HTTP/1.0" {
			return BadRequestLine
		}
		return fine
	case len(line) > 0:
		return s.header(line)
	}
	switch hasLength, hasEncoding := s.fields&(1<<theLength) > 0, s.fields&(1<<theEncoding) > 0; {
	case hasLength && hasEncoding:
		return BadLength
	case hasEncoding:
		return LengthRequired
	}
	if s.state, s.left = inBody, s.length; s.left == 0 {
		s.state = over
	}
	return fine
}

// header parses a header line.
func (s *scanner) header(line []byte) Reason {
	name, value, found := bytes.Cut(line, colon)
	if !found || !isToken(name) {
		return BadHeader
	}
	field := slices.IndexFunc(single[:], func(one string) bool { return len(one) == len(name) && strings.EqualFold(one, string(name)) })
	if field < 0 {
		return fine
	}
	isRepeated := s.fields&(1<<field) > 0
	s.fields |= 1 << field
	switch field {
	case theEncoding: // rejected at the end of the head, depending on Content-Length
		return fine
	case theLength:
		length, err := strconv.ParseUint(string(bytes.Trim(value, " \t")), 10, 64)
		if err != nil || length > maxLength || isRepeated {
			return BadLength
		}
		s.length = int(length)
	}
	if isRepeated {
		return Repeated
	}
	return fine
}

// isToken reports whether a text is a token: a method or the name of a header field (RFC 9110, section 5.6.2).
func isToken(text []byte) bool {
	for _, b := range text {
		letter := b | ('a' - 'A')
		if (letter < 'a' || letter > 'z') && (b < '0' || b > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0 {
			return false
		}
	}
	return len(text) > 0
}
