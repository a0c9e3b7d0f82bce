package httpconn

import "strings"

// Reason says why a request or a connection is refused.
type Reason uint8

// The reasons.
const (
	fine           Reason = iota
	TooMany               // there are too many connections
	TooSlow               // the request did not arrive in time
	TooLarge              // the head of the request is too large
	BadRequestLine        // no method, target, version 1.1 or 1.0 and CR LF
	BadHeader             // a header line that is not: name, colon, value, CR LF
	BadLength             // a Content-Length that is not one number, or that has a Transfer-Encoding beside it
	LengthRequired        // a Transfer-Encoding: only Content-Length says here how long a body is
)

// scanner follows the bytes of one request: its head by the grammar of RFC 9112,
// sections 2 to 6, and then the length of its body.
type scanner struct {
	limit  int // bytes of a head
	seen   int // bytes of this head
	state  state
	inName int  // which of the names that matter begins like this one, as a set of bits
	length int  // of the body; -1: not said yet
	digits int  // of a length
	blank  bool // after the digits of a length
	other  bool // a Transfer-Encoding was seen
	name   int  // bytes of the name or version in hand
}

type state uint8

const (
	atStart state = iota
	afterCR       // an empty line may stand before a request
	beforeMethod
	inMethod
	beforeTarget
	inTarget
	inVersion
	lineEnd // CR was read at the end of the request line
	atHeader
	inHeader
	inValue
	valueEnd
	headEnd
	inBody
	over
)

const version = "HTTP/1."

// The header names that say how long a body is.
var lengthNames = [...]string{"content-length", "transfer-encoding"}

const (
	isLength   = 1 << 0
	isEncoding = 1 << 1
)

// most is the longest body that can be told from a mistake.
const most = 1 << 50

func (s *scanner) reset()       { *s = scanner{limit: s.limit} }
func (s *scanner) fresh() bool  { return s.state == atStart && s.seen == 0 }
func (s *scanner) ended() bool  { return s.state == over }
func (s *scanner) inBody() bool { return s.state == inBody }

// scan follows bytes of a request and returns how many belong to it.
func (s *scanner) scan(p []byte) (taken int, reason Reason) {
	for taken < len(p) && s.state < inBody {
		if s.seen == 0 {
			s.length = -1
		}
		if s.seen++; s.seen > s.limit {
			return taken, TooLarge
		}
		if reason := s.step(p[taken]); reason != fine {
			return taken, reason
		}
		taken++
	}
	if s.state == inBody {
		n := min(s.length, len(p)-taken)
		taken += n
		if s.length -= n; s.length == 0 {
			s.state = over
		}
	}
	return taken, fine
}

// step follows one byte of a head.
func (s *scanner) step(b byte) Reason {
	if s.state < atHeader {
		return s.requestLine(b)
	}
	switch s.state {
	case atHeader:
		if b == '\r' {
			s.state = headEnd
			return fine
		}
		s.state, s.name, s.inName = inHeader, 0, isLength|isEncoding
		return s.header(b)
	case inHeader:
		return s.header(b)
	case inValue:
		return s.value(b)
	case valueEnd:
		if b != '\n' {
			return BadHeader
		}
		s.state = atHeader
		return s.endOfValue()
	default: // headEnd
		if b != '\n' {
			return BadHeader
		}
		return s.endOfHead()
	}
}

func (s *scanner) requestLine(b byte) Reason {
	var ok bool
	switch s.state {
	case atStart, beforeMethod:
		if b == '\r' && s.state == atStart {
			s.state = afterCR
			return fine
		}
		ok, s.state = token(b), inMethod
	case afterCR:
		ok, s.state = b == '\n', beforeMethod
	case inMethod:
		if b == ' ' {
			s.state = beforeTarget
			return fine
		}
		ok = token(b)
	case beforeTarget:
		ok, s.state = b > ' ' && b != 0x7f, inTarget
	case inTarget:
		if b == ' ' {
			s.state, s.name = inVersion, 0
			return fine
		}
		ok = b > ' ' && b != 0x7f
	case inVersion:
		switch {
		case s.name < len(version):
			ok = b == version[s.name]
		case s.name == len(version):
			ok = b == '1' || b == '0'
		default:
			ok, s.state = b == '\r', lineEnd
		}
		s.name++
	default: // lineEnd
		ok, s.state = b == '\n', atHeader
	}
	if !ok {
		return BadRequestLine
	}
	return fine
}

// header follows the name of a header field, up to its colon.
func (s *scanner) header(b byte) Reason {
	switch {
	case b == ':' && s.name > 0:
		s.state, s.digits, s.blank = inValue, 0, false
		for i, name := range lengthNames {
			if s.name != len(name) {
				s.inName &^= 1 << i
			}
		}
		if s.inName == isLength && s.length >= 0 {
			return BadLength
		}
		if s.inName == isLength {
			s.length = 0
		}
		return fine
	case !token(b):
		return BadHeader
	}
	for i, name := range lengthNames {
		if s.name >= len(name) || lower(b) != name[s.name] {
			s.inName &^= 1 << i
		}
	}
	s.name++
	return fine
}

// value follows the value of a header field, up to the CR.
func (s *scanner) value(b byte) Reason {
	switch {
	case b == '\r':
		s.state = valueEnd
		return fine
	case b < ' ' && b != '\t' || b == 0x7f:
		return BadHeader
	case s.inName != isLength:
		return fine
	case b == ' ' || b == '\t':
		s.blank = s.digits > 0
		return fine
	case b < '0' || b > '9' || s.blank:
		return BadLength
	}
	s.digits++
	if s.length = s.length*10 + int(b-'0'); s.length > most {
		return BadLength
	}
	return fine
}

func (s *scanner) endOfValue() Reason {
	if s.inName == isLength && s.digits == 0 {
		return BadLength
	}
	s.other = s.other || s.inName == isEncoding
	return fine
}

func (s *scanner) endOfHead() Reason {
	switch {
	case s.other && s.length >= 0:
		return BadLength
	case s.other:
		return LengthRequired
	case s.length > 0:
		s.state = inBody
	default:
		s.state = over
	}
	return fine
}

// token tells whether a byte may stand in a method or in the name of a header field
// (tchar in RFC 9110, section 5.6.2).
func token(b byte) bool {
	return lower(b) >= 'a' && lower(b) <= 'z' || b >= '0' && b <= '9' || b != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
}

// lower makes a letter of ASCII small; no name has the bytes that others become.
func lower(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b + ('a' - 'A')
	}
	return b
}
