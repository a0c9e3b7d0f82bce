package timestamp

import (
	"bytes"
	"crypto/sha256"
	stdasn1 "encoding/asn1"
	"slices"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"triprize/internal/domain/fairdraw"
)

// certificate is what a chain needs of a certificate of RFC 5280.
type certificate struct {
	raw         []byte
	signed      []byte // what its issuer has signed
	serial      []byte // in two's complement
	issuer      []byte // a Name in DER
	subject     []byte // a Name in DER
	from, until time.Time
	key         []byte // SubjectPublicKeyInfo in DER
	extensions  map[oid]extension
	algorithm   algorithm
	signature   []byte
}

type extension struct {
	critical bool
	value    []byte
}

// parseCertificate reads one certificate in DER. It checks no signature.
func parseCertificate(der []byte) (*certificate, error) {
	const what = "a certificate"
	all := read(der, what)
	outer := all.inside(asn1.SEQUENCE, what)
	all.end()
	c := &certificate{raw: der, extensions: make(map[oid]extension)}
	c.signed = outer.raw(asn1.SEQUENCE)
	c.algorithm = outer.algorithm()
	c.signature = outer.bits()
	outer.end()
	list := (&members{rest: c.signed, what: what, fault: outer.fault}).inside(asn1.SEQUENCE, what)
	if list.rest.PeekASN1Tag(explicit(0)) {
		version := list.inside(explicit(0), what)
		version.small(asn1.INTEGER, 2) // the third
		version.end()
	}
	c.serial = list.integer(asn1.INTEGER)
	inner := list.algorithm()
	c.issuer = list.raw(asn1.SEQUENCE)
	validity := list.inside(asn1.SEQUENCE, what)
	c.from, c.until = validity.moment(false), validity.moment(false)
	validity.end()
	c.subject = list.raw(asn1.SEQUENCE)
	c.key = list.raw(asn1.SEQUENCE)
	list.optional(asn1.Tag(1).ContextSpecific()) // unique identifiers
	list.optional(asn1.Tag(2).ContextSpecific())
	if list.rest.PeekASN1Tag(explicit(3)) {
		block := list.inside(explicit(3), what)
		block.inside(asn1.SEQUENCE, "a list of extensions").extensions(c.extensions)
		block.end()
	}
	list.end()
	if inner.id != c.algorithm.id || !bytes.Equal(inner.parameters, c.algorithm.parameters) {
		list.refuse("a certificate names two algorithms of its signature")
	}
	return c, *list.fault
}

func explicit(n uint8) asn1.Tag { return asn1.Tag(n).ContextSpecific().Constructed() }

// extensions reads all members as extensions.
func (m *members) extensions(into map[oid]extension) {
	for *m.fault == nil && !m.rest.Empty() {
		one := m.inside(asn1.SEQUENCE, "an extension")
		id := one.oid()
		e := extension{critical: one.boolean(), value: one.content(asn1.OCTET_STRING)}
		one.end()
		if _, twice := into[id]; twice {
			m.refuse("an extension is there twice")
		}
		into[id] = e
	}
}

var (
	oidBasicConstraints = oidOf(2, 5, 29, 19)
	oidKeyUsage         = oidOf(2, 5, 29, 15)
	oidExtKeyUsage      = oidOf(2, 5, 29, 37)
	oidTimeStamping     = oidOf(1, 3, 6, 1, 5, 5, 7, 3, 8)
	oidAnyUsage         = oidOf(2, 5, 29, 37, 0)
)

// known are the extensions that may be critical: those that are looked at, and the subject's and issuer's key
// identifiers, other names and policies, which forbid nothing. refusedOnes would bind what is below.
var (
	known = map[oid]bool{oidBasicConstraints: true, oidKeyUsage: true, oidExtKeyUsage: true, oidOf(2, 5, 29, 14): true,
		oidOf(2, 5, 29, 17): true, oidOf(2, 5, 29, 32): true, oidOf(2, 5, 29, 35): true}
	refusedOnes = map[oid]string{oidOf(2, 5, 29, 30): "name constraints", oidOf(2, 5, 29, 36): "policy constraints",
		oidOf(2, 5, 29, 33): "policy mappings", oidOf(2, 5, 29, 54): "a policy that it inhibits"}
)

// The bits of a key usage.
const (
	digitalSignature  = 0
	contentCommitment = 1
	keyCertSign       = 5
)

// mayBeFor tells whether a certificate says no key usage, or one of some.
func (c *certificate) mayBeFor(bits ...int) bool {
	e, there := c.extensions[oidKeyUsage]
	if !there {
		return true
	}
	value := cryptobyte.String(e.value)
	var usage stdasn1.BitString
	if !value.ReadASN1BitString(&usage) || !value.Empty() {
		return false
	}
	for _, bit := range bits {
		if usage.At(bit) == 1 {
			return true
		}
	}
	return false
}

// usages returns the extended key usages; none if there is no such extension, or another form of it.
func (c *certificate) usages() (ids []oid) {
	e := read(c.extensions[oidExtKeyUsage].value, "an extended key usage")
	list := e.inside(asn1.SEQUENCE, "an extended key usage")
	e.end()
	for *e.fault == nil && !list.rest.Empty() {
		ids = append(ids, list.oid())
	}
	if *e.fault != nil {
		return nil
	}
	return ids
}

// isForTimestamps demands what RFC 3161 demands of a signer: an extended key usage that is
// critical, and timeStamping alone.
func (c *certificate) isForTimestamps() error {
	ids := c.usages()
	switch {
	case len(ids) != 1 || ids[0] != oidTimeStamping:
		return refused("the signer's certificate is not for timestamps alone")
	case !c.extensions[oidExtKeyUsage].critical:
		return refused("the signer's certificate does not say as critical that it is for timestamps")
	case !c.mayBeFor(digitalSignature, contentCommitment):
		return refused("the signer's certificate is not for signatures")
	}
	return nil
}

// counts demands that a certificate of a chain was valid at a time, and has no extension that would
// need more than is looked at.
func (c *certificate) counts(at time.Time) error {
	switch {
	case at.Before(c.from):
		return refused("its certificates: one is not yet valid at %s", at.Format(time.RFC3339Nano))
	case at.After(c.until):
		return refused("its certificates: one has expired at %s", at.Format(time.RFC3339Nano))
	}
	for id, e := range c.extensions {
		if what, is := refusedOnes[id]; is {
			return refused("its certificates: one has %s", what)
		}
		if e.critical && !known[id] {
			return refused("its certificates: the extension %s is critical, and unknown here", id)
		}
	}
	return nil
}

// hasSigned demands that c may issue a certificate with some between it and the signer's, and has.
func (c *certificate) hasSigned(issued *certificate, between int64) error {
	e := read(c.extensions[oidBasicConstraints].value, "a certificate's constraints")
	list := e.inside(asn1.SEQUENCE, "a certificate's constraints")
	e.end()
	ca, most := list.boolean(), between
	if list.rest.PeekASN1Tag(asn1.INTEGER) {
		most = list.small(asn1.INTEGER, 1<<31-1)
	}
	list.end()
	ids := c.usages()
	_, extended := c.extensions[oidExtKeyUsage]
	switch {
	case *list.fault != nil || !ca || !c.mayBeFor(keyCertSign):
		return refused("its certificates: one may not issue others")
	case most < between:
		return refused("its certificates: the chain is longer than one allows")
	case extended && !slices.Contains(ids, oidTimeStamping) && !slices.Contains(ids, oidAnyUsage):
		return refused("its certificates: an issuer's is not for timestamps")
	}
	return checkSignature(c.key, issued.algorithm, 0, issued.signed, issued.signature)
}

func (c *certificate) hash() fairdraw.Hash { return sha256.Sum256(c.raw) }
