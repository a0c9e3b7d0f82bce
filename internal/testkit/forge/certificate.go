package forge

import (
	"cmp"
	"crypto"
	"crypto/elliptic"
	"encoding/asn1"
	"sync"
)

// The extensions that rules are about.
var (
	oidBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidKeyUsage         = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidExtendedUsage    = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidTimeStamping     = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}
)

// Certificate is one certificate. By default it has a key on P-256, is valid from 2020 to 2040,
// and its issuer is itself.
type Certificate struct {
	Name   string       // common name of its subject
	Serial uint8        // below 127
	Signer bool         // it is for timestamps; otherwise it issues certificates
	Issuer *Certificate // nil: itself
	Key    Key
	Hash   crypto.Hash // of its signature; 0: SHA-256
	Changes

	der []byte
}

func (c *Certificate) key() Key {
	if c.Key != nil {
		return c.Key
	}
	return EC(elliptic.P256(), c.Name)
}

// making lets one at a time make a certificate: two makings of one have other signatures, and tests share some.
var making sync.Mutex

// DER returns the certificate, always the same.
func (c *Certificate) DER() []byte {
	making.Lock()
	defer making.Unlock()
	if c.der == nil {
		c.make()
	}
	return c.der
}

// make writes a Certificate of RFC 5280. Its structures: certificate, signed, version, serial, inner-algorithm,
// issuer, validity, from, until, subject, key, key-algorithm, point, unique, explicit-extensions, extensions,
// basic-constraints, key-usage, extended-key-usage, outer-algorithm, signature.
func (c *Certificate) make() {
	issuer, hash := c.Issuer, cmp.Or(c.Hash, crypto.SHA256)
	if issuer == nil {
		issuer = c
	}
	algorithm, key := c.key().public()
	signed := c.is("signed", tagSequence,
		c.is("version", tagContext, number(2)),
		c.is("serial", tagInteger, []byte{c.Serial + 1}),
		c.is("inner-algorithm", tagSequence, body(issuer.key().algorithm(hash))),
		c.is("issuer", tagSequence, body(name(issuer.Name))),
		c.is("validity", tagSequence, c.is("from", tagUTCTime, []byte("200101000000Z")), c.is("until", tagUTCTime, []byte("400101000000Z"))),
		c.is("subject", tagSequence, body(name(c.Name))),
		c.is("key", tagSequence, c.is("key-algorithm", tagSequence, body(algorithm)), c.is("point", tagBits, []byte{0}, key)),
		c.Instead["unique"],
		c.is("explicit-extensions", tagExtensions, c.is("extensions", tagSequence, c.extensions()...)),
	)
	c.der = c.is("certificate", tagSequence, signed,
		c.is("outer-algorithm", tagSequence, body(issuer.key().algorithm(hash))),
		c.is("signature", tagBits, []byte{0}, issuer.key().sign(hash, digestOf(hash, signed))))
}

func (c *Certificate) extensions() [][]byte {
	if c.Signer {
		return [][]byte{
			c.is("key-usage", tagSequence, body(Extension(oidKeyUsage, true, usage(0x80)))),
			c.is("extended-key-usage", tagSequence, body(Extension(oidExtendedUsage, true, TLV(tagSequence, oid(oidTimeStamping))))),
		}
	}
	return [][]byte{
		c.is("basic-constraints", tagSequence, body(Extension(oidBasicConstraints, true, constraints()))),
		c.is("key-usage", tagSequence, body(Extension(oidKeyUsage, true, usage(0x04)))),
	}
}

// usage returns a KeyUsage of its first eight bits.
func usage(first byte) []byte {
	unused := byte(0)
	for first != 0 && first>>unused&1 == 0 {
		unused++
	}
	return TLV(tagBits, []byte{unused, first})
}

// constraints returns BasicConstraints of a certificate that issues others, with more members.
func constraints(more ...[]byte) []byte {
	return TLV(tagSequence, append([][]byte{{0x01, 0x01, 0xff}}, more...)...)
}

// body returns the content of a value.
func body(der []byte) []byte {
	var v asn1.RawValue
	if _, err := asn1.Unmarshal(der, &v); err != nil {
		panic(err)
	}
	return v.Bytes
}
