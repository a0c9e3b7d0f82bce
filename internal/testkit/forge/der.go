package forge

import (
	"bytes"
	"encoding/asn1"
	"math/big"
)

// Tags of DER.
const (
	tagInteger    = 0x02
	tagBits       = 0x03
	tagOctets     = 0x04
	tagUTCTime    = 0x17
	tagTime       = 0x18
	tagSequence   = 0x30
	tagSet        = 0x31
	tagImplicit   = 0x80
	tagContext    = 0xa0
	tagExtensions = 0xa3
)

// Changes of structures, by name.
type Changes struct {
	Instead map[string][]byte // whole values in DER; nil: it is left out
	Behind  map[string][]byte // behind the last member
}

// is returns a structure, with what changes in it.
func (c Changes) is(name string, tag byte, members ...[]byte) []byte {
	if other, changed := c.Instead[name]; changed {
		return other
	}
	return TLV(tag, append(members, c.Behind[name])...)
}

// TLV returns a value in DER.
func TLV(tag byte, members ...[]byte) []byte {
	content := bytes.Join(members, nil)
	der := []byte{tag}
	switch n := len(content); {
	case n < 0x80:
		der = append(der, byte(n))
	case n < 1<<8:
		der = append(der, 0x81, byte(n))
	default:
		der = append(der, 0x82, byte(n>>8), byte(n)) //nolint:gosec // the last eight bits are meant
	}
	return append(der, content...)
}

func oid(id asn1.ObjectIdentifier) []byte { return marshal(id) }

func number(n int64) []byte { return marshal(big.NewInt(n)) }

func marshal(value any) []byte {
	der, err := asn1.Marshal(value)
	if err != nil {
		panic(err)
	}
	return der
}

func bits(content []byte) []byte { return TLV(tagBits, []byte{0}, content) }

// name returns a Name with a common name.
func name(common string) []byte {
	if common == "" {
		return TLV(tagSequence)
	}
	return TLV(tagSequence, TLV(tagSet, TLV(tagSequence, oid(asn1.ObjectIdentifier{2, 5, 4, 3}), TLV(0x0c, []byte(common)))))
}

// Extension returns an extension of a certificate.
func Extension(id asn1.ObjectIdentifier, critical bool, value []byte) []byte {
	mark := []byte{}
	if critical {
		mark = []byte{0x01, 0x01, 0xff}
	}
	return TLV(tagSequence, oid(id), mark, TLV(tagOctets, value))
}
