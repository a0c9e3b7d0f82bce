package timestamp

import (
	"bytes"
	_ "crypto/sha1" //nolint:gosec // RFC 2634 names certificates by SHA-1; see attributes.name
	"math/big"
	"time"

	"golang.org/x/crypto/cryptobyte/asn1"

	"triprize/internal/domain/fairdraw"
)

var oidSHA256 = oidOf(2, 16, 840, 1, 101, 3, 4, 2, 1)

// tstInfo is what is needed of TSTInfo of RFC 3161.
type tstInfo struct {
	hash     algorithm // of the digest
	digest   []byte
	genTime  time.Time     // a part of a microsecond counts as a whole one
	accuracy time.Duration // 0 when it is left out
	nonce    *big.Int      // nil: none
}

func readInfo(der []byte) (info tstInfo, err error) {
	const what = "its content"
	all := read(der, what)
	list := all.inside(asn1.SEQUENCE, what)
	all.end()
	if list.small(asn1.INTEGER, mostVersion) != 1 {
		list.refuse("its version is not 1")
	}
	list.oid() // policy
	imprint := list.inside(asn1.SEQUENCE, "its digest")
	info.hash, info.digest = imprint.algorithm(), imprint.content(asn1.OCTET_STRING)
	imprint.end()
	list.integer(asn1.INTEGER) // serial number
	info.genTime = list.moment(true)
	if list.rest.PeekASN1Tag(asn1.SEQUENCE) {
		info.accuracy = list.inside(asn1.SEQUENCE, "its accuracy").duration()
	}
	list.boolean() // ordering
	if list.rest.PeekASN1Tag(asn1.INTEGER) {
		info.nonce = new(big.Int).SetBytes(list.integer(asn1.INTEGER))
	}
	list.optional(explicit(0)) // the authority's name
	extensions := make(map[oid]extension)
	if list.rest.PeekASN1Tag(explicit(1)) {
		list.inside(explicit(1), what).extensions(extensions)
	}
	list.end()
	for id, e := range extensions {
		if e.critical {
			list.refuse("its extension %s is critical, and unknown here", id)
		}
	}
	return info, *list.fault
}

// duration takes the members of Accuracy. A second beyond these bounds is none of a clock.
func (m *members) duration() (d time.Duration) {
	const mostSeconds, mostParts = 1_000_000_000, 999
	for _, part := range []struct {
		tag  asn1.Tag
		unit time.Duration
		most int64
	}{{asn1.INTEGER, time.Second, mostSeconds}, {asn1.Tag(0).ContextSpecific(), time.Millisecond, mostParts}, {asn1.Tag(1).ContextSpecific(), time.Microsecond, mostParts}} {
		if m.rest.PeekASN1Tag(part.tag) {
			d += time.Duration(m.small(part.tag, part.most)) * part.unit
		}
	}
	m.end()
	return d
}

// isAbout demands that the token is about this SHA-256 digest.
func (i tstInfo) isAbout(digest fairdraw.Hash) error {
	if i.hash.id != oidSHA256 {
		return refused("it is about a digest that is not SHA-256")
	}
	if err := i.hash.plain(); err != nil {
		return err
	}
	if !bytes.Equal(i.digest, digest[:]) {
		return refused("it is about the digest %x", i.digest)
	}
	return nil
}
