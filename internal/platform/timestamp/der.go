package timestamp

import (
	"bytes"
	stdasn1 "encoding/asn1"
	"encoding/hex"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// members reads the members of one structure in order, in DER only. The first fault of all
// structures of a token stays.
type members struct {
	rest  cryptobyte.String
	what  string // the structure, in words
	fault *error
}

func read(content []byte, what string) *members {
	return &members{rest: content, what: what, fault: new(error)}
}

func (m *members) refuse(format string, args ...any) {
	if *m.fault == nil {
		*m.fault = refused(format, args...)
	}
	m.rest = nil
}

// raw takes the next value with its header.
func (m *members) raw(tag asn1.Tag) (der []byte) {
	var value cryptobyte.String
	if !m.rest.ReadASN1Element(&value, tag) {
		m.refuse("%s is not as it must be", m.what)
	}
	return value
}

// any takes the next value, with its header.
func (m *members) any() []byte {
	var value cryptobyte.String
	if !m.rest.ReadAnyASN1Element(&value, new(asn1.Tag)) {
		m.refuse("%s is not as it must be", m.what)
	}
	return value
}

// content takes the next value without its header.
func (m *members) content(tag asn1.Tag) []byte {
	der := cryptobyte.String(m.raw(tag))
	if *m.fault != nil || !der.ReadASN1(&der, tag) {
		return nil
	}
	return der
}

// optional takes the next value if it has this tag.
func (m *members) optional(tag asn1.Tag) (content []byte, found bool) {
	if !m.rest.PeekASN1Tag(tag) {
		return nil, false
	}
	return m.content(tag), *m.fault == nil
}

// inside takes the next value, to read its members.
func (m *members) inside(tag asn1.Tag, what string) *members {
	return &members{rest: m.content(tag), what: what, fault: m.fault}
}

// end demands that there are no more members.
func (m *members) end() {
	if *m.fault == nil && !m.rest.Empty() {
		m.refuse("%s has more members than it may have", m.what)
	}
}

// integer takes an INTEGER, as its bytes in two's complement.
func (m *members) integer(tag asn1.Tag) []byte {
	b := m.content(tag)
	if *m.fault == nil && (len(b) == 0 || len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80)) {
		m.refuse("%s has a number that is not in DER", m.what)
	}
	return b
}

// small takes an INTEGER from 0 to most.
func (m *members) small(tag asn1.Tag, most int64) (n int64) {
	for i, b := range m.integer(tag) {
		if i == 8 || b >= 0x80 && i == 0 {
			n = most + 1
			break
		}
		n = n<<8 | int64(b)
	}
	if n < 0 || n > most {
		m.refuse("%s has a number that is not from 0 to %d", m.what, most)
		return 0
	}
	return n
}

// boolean takes a BOOLEAN, false if there is none.
func (m *members) boolean() (value bool) {
	if m.rest.PeekASN1Tag(asn1.BOOLEAN) && !m.rest.ReadASN1Boolean(&value) {
		m.refuse("%s has a truth value that is neither", m.what)
	}
	return value
}

// oid is the content of an OBJECT IDENTIFIER.
type oid string

func (o oid) String() string {
	var id stdasn1.ObjectIdentifier
	if _, err := stdasn1.Unmarshal(append([]byte{byte(asn1.OBJECT_IDENTIFIER), byte(len(o))}, o...), &id); err != nil { //nolint:gosec // a longer one is shown in hex
		return hex.EncodeToString([]byte(o))
	}
	return id.String()
}

func oidOf(arcs ...int) oid {
	der, err := stdasn1.Marshal(stdasn1.ObjectIdentifier(arcs))
	if err != nil {
		panic(err)
	}
	return oid(der[2:])
}

// oid takes an OBJECT IDENTIFIER.
func (m *members) oid() oid {
	b := m.content(asn1.OBJECT_IDENTIFIER)
	begin := true
	for _, c := range b {
		if begin && c == 0x80 {
			m.refuse("%s has an identifier that is not in DER", m.what)
		}
		begin = c < 0x80
	}
	if *m.fault == nil && (len(b) == 0 || !begin) {
		m.refuse("%s has an identifier that is cut", m.what)
	}
	return oid(b)
}

// bits takes a BIT STRING of whole bytes.
func (m *members) bits() []byte {
	b := m.content(asn1.BIT_STRING)
	if *m.fault == nil && (len(b) == 0 || b[0] != 0) {
		m.refuse("%s has bits that are no whole bytes", m.what)
	}
	if len(b) == 0 {
		return nil
	}
	return b[1:]
}

// algorithm is an AlgorithmIdentifier.
type algorithm struct {
	id         oid
	parameters []byte // in DER; nil: none
}

func (m *members) algorithm() (a algorithm) {
	list := m.inside(asn1.SEQUENCE, "the name of an algorithm")
	a.id = list.oid()
	if !list.rest.Empty() {
		a.parameters = list.any()
	}
	list.end()
	return a
}

// plain demands that an algorithm has no parameters, or null.
func (a algorithm) plain() error {
	if a.parameters != nil && !bytes.Equal(a.parameters, []byte{byte(asn1.NULL), 0}) {
		return refused("the algorithm %s has parameters", a.id)
	}
	return nil
}

// moment takes a time. Only fractional ones may have a fraction of a second, of at most nine digits;
// a part of a microsecond counts as a whole one. A UTCTime is of the years 1950 to 2049.
func (m *members) moment(fractional bool) time.Time {
	var text string
	if m.rest.PeekASN1Tag(asn1.UTCTime) && !fractional {
		if text = string(m.content(asn1.UTCTime)); text >= "50" {
			text = "19" + text
		} else {
			text = "20" + text
		}
	} else {
		text = string(m.content(asn1.GeneralizedTime))
	}
	const layout = "20060102150405"
	digits := min(len(text), len(layout))
	at, err := time.Parse(layout, text[:digits])
	nanos, ok := fraction(text[digits:])
	if *m.fault == nil && (err != nil || !ok || at.Year() < 1 || at.Format(layout) != text[:digits] || nanos > 0 && !fractional) {
		m.refuse("%s has %q where a time must be", m.what, text)
	}
	return at.Add((nanos + 999).Truncate(time.Microsecond))
}

// fraction reads what is behind the seconds: a fraction without zeros at its end, if any, and Z.
func fraction(text string) (time.Duration, bool) {
	n := len(text) - 1 // of the point and its digits
	if n < 0 || text[n] != 'Z' || n == 1 || n > 10 || n > 0 && (text[0] != '.' || text[n-1] == '0') {
		return 0, false
	}
	nanos, unit := time.Duration(0), time.Second
	for i := 1; i < n; i++ {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		unit /= 10
		nanos += time.Duration(text[i]-'0') * unit
	}
	return nanos, true
}
