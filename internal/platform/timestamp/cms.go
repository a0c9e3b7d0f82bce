package timestamp

import (
	"bytes"
	"crypto"
	"slices"

	"golang.org/x/crypto/cryptobyte/asn1"
)

var (
	oidSignedData    = oidOf(1, 2, 840, 113549, 1, 7, 2)
	oidTSTInfo       = oidOf(1, 2, 840, 113549, 1, 9, 16, 1, 4)
	oidContentType   = oidOf(1, 2, 840, 113549, 1, 9, 3)
	oidMessageDigest = oidOf(1, 2, 840, 113549, 1, 9, 4)
)

// signed is a parsed token: SignedData of RFC 5652.
type signed struct {
	content      []byte // the TSTInfo
	certificates []*certificate
	signer       signerInfo
}

// signerInfo is SignerInfo of RFC 5652 with issuer and serial number.
type signerInfo struct {
	issuer     []byte // a Name in DER
	serial     []byte
	digest     algorithm
	attributes []byte // with their header
	algorithm  algorithm
	signature  []byte
}

const mostVersion = 1<<31 - 1 // of data and signer; it is not looked at

// parse reads a token. It checks no signature.
func parse(der []byte) (signed, error) {
	all := read(der, "the token")
	outer := all.inside(asn1.SEQUENCE, "the token")
	all.end()
	if outer.oid() != oidSignedData {
		outer.refuse("it is not signed data")
	}
	wrapped := outer.inside(explicit(0), "the token")
	outer.end()
	data := wrapped.inside(asn1.SEQUENCE, "the signed data")
	wrapped.end()
	data.small(asn1.INTEGER, mostVersion)
	data.content(asn1.SET) // digest algorithms
	encapsulated := data.inside(asn1.SEQUENCE, "the content")
	if encapsulated.oid() != oidTSTInfo {
		encapsulated.refuse("its content is no timestamp")
	}
	holder := encapsulated.inside(explicit(0), "the content")
	encapsulated.end()
	s := signed{content: holder.content(asn1.OCTET_STRING)}
	holder.end()
	if data.rest.PeekASN1Tag(explicit(0)) {
		s.certificates = data.inside(explicit(0), "the certificates").certificates()
	}
	data.optional(explicit(1)) // lists of revoked certificates
	signers := data.inside(asn1.SET, "the signers")
	data.end()
	s.signer = signers.signer()
	if *all.fault == nil && !signers.rest.Empty() {
		signers.refuse("it has more signers than one")
	}
	return s, *all.fault
}

func (m *members) certificates() (list []*certificate) {
	for *m.fault == nil && !m.rest.Empty() {
		c, err := parseCertificate(m.raw(asn1.SEQUENCE))
		if err != nil {
			m.refuse("its certificates: %w", err)
		}
		list = append(list, c)
	}
	return list
}

func (m *members) signer() (s signerInfo) {
	one := m.inside(asn1.SEQUENCE, "the signer")
	one.small(asn1.INTEGER, mostVersion)
	name := one.inside(asn1.SEQUENCE, "the signer's name")
	s.issuer, s.serial = name.raw(asn1.SEQUENCE), name.integer(asn1.INTEGER)
	name.end()
	s.digest = one.algorithm()
	s.attributes = one.raw(explicit(0))
	s.algorithm = one.algorithm()
	s.signature = one.content(asn1.OCTET_STRING)
	one.optional(explicit(1)) // attributes that are not signed
	one.end()
	return s
}

// isBy tells whether a certificate is the signer's.
func (s signerInfo) isBy(c *certificate) bool {
	return bytes.Equal(c.issuer, s.issuer) && bytes.Equal(c.serial, s.serial)
}

// verify checks the signature, and that it is about the content, and returns the signer's
// certificate.
func (s signed) verify() (*certificate, error) {
	attributes, err := s.attributes()
	if err != nil {
		return nil, err
	}
	hash, ok := hashes[s.signer.digest.id]
	if !ok {
		return nil, refused("its digest algorithm %s is not accepted", s.signer.digest.id)
	}
	if err := s.signer.digest.plain(); err != nil {
		return nil, err
	}
	if err := attributes.areAbout(s.content, hash); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(s.certificates, s.signer.isBy)
	if i < 0 {
		return nil, refused("the signer's certificate is not in it")
	}
	signer := s.certificates[i]
	if err := attributes.name(signer); err != nil {
		return nil, err
	}
	covered := slices.Clone(s.signer.attributes)
	covered[0] = byte(asn1.SET) // RFC 5652, 5.4: what is signed is a SET OF, not [0]
	return signer, checkSignature(signer.key, s.signer.algorithm, hash, covered, s.signer.signature)
}

// attributes are the values of signed attributes, in DER, by type.
type attributes map[oid][]byte

// attributes returns the signed attributes. Each has one value.
func (s signed) attributes() (attributes, error) {
	found := make(attributes)
	all := read(s.signer.attributes, "the signed attributes")
	for list := all.inside(explicit(0), "the signed attributes"); *all.fault == nil && !list.rest.Empty(); {
		one := list.inside(asn1.SEQUENCE, "a signed attribute")
		id := one.oid()
		values := one.inside(asn1.SET, "a signed attribute")
		one.end()
		value := values.any()
		if _, twice := found[id]; twice || !values.rest.Empty() {
			values.refuse("its signed attribute %s has not one value", id)
		}
		found[id] = value
	}
	return found, *all.fault
}

// areAbout demands that what is signed is this content, and a timestamp.
func (a attributes) areAbout(content []byte, hash crypto.Hash) error {
	if kind := read(a[oidContentType], "the content's type"); kind.oid() != oidTSTInfo {
		return refused("what is signed is no timestamp")
	}
	if digest := read(a[oidMessageDigest], "the content's digest"); !bytes.Equal(digest.content(asn1.OCTET_STRING), sum(hash, content)) {
		return refused("the digest that is signed is not the content's")
	}
	return nil
}

var (
	oidSigningCertificate   = oidOf(1, 2, 840, 113549, 1, 9, 16, 2, 12)
	oidSigningCertificateV2 = oidOf(1, 2, 840, 113549, 1, 9, 16, 2, 47)
)

// name demands that the signed attributes name the signer's certificate, so that no other
// certificate of the same key can stand in for it: by SHA-1 (RFC 2634), by another hash (RFC 5035), or both.
// Two certificates with one SHA-1 could only be made by the authority that issues both.
func (a attributes) name(signer *certificate) error {
	first, inFirst := a[oidSigningCertificate]
	second, inSecond := a[oidSigningCertificateV2]
	if !inFirst && !inSecond {
		return refused("it does not name its signer's certificate")
	}
	if inFirst {
		if err := names(first, false, signer); err != nil {
			return err
		}
	}
	if inSecond {
		return names(second, true, signer)
	}
	return nil
}

// names demands that the first entry of a signing certificate attribute is of the signer's.
func names(attribute []byte, second bool, signer *certificate) error {
	const what = "the name of the signer's certificate"
	list := read(attribute, what).inside(asn1.SEQUENCE, what)
	entries := list.inside(asn1.SEQUENCE, what)
	list.optional(asn1.SEQUENCE) // policies
	list.end()
	entry := entries.inside(asn1.SEQUENCE, what)
	hash := crypto.SHA1
	if second {
		hash = crypto.SHA256
		if entry.rest.PeekASN1Tag(asn1.SEQUENCE) {
			by := entry.algorithm()
			var accepted bool
			if hash, accepted = hashes[by.id]; !accepted || by.plain() != nil {
				return refused("it names its signer's certificate by %s, which is not accepted", by.id)
			}
		}
	}
	digest := entry.content(asn1.OCTET_STRING)
	entry.optional(asn1.SEQUENCE) // issuer and serial number
	entry.end()
	for *list.fault == nil && !entries.rest.Empty() {
		entries.any() // of another certificate
	}
	if *list.fault != nil {
		return *list.fault
	}
	if !bytes.Equal(digest, sum(hash, signer.raw)) {
		return refused("it names another certificate as its signer's")
	}
	return nil
}
