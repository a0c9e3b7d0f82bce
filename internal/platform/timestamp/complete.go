package timestamp

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"slices"
)

// certificateSet begins the certificates in a token: [0], constructed.
const certificateSet = 0

// complete returns a token with further certificates: those that it does not have. Nothing
// of it that is signed changes.
func complete(der []byte, further []*x509.Certificate) ([]byte, error) {
	s, err := parse(der)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, c := range slices.Concat(s.certificates, further) {
		if !slices.ContainsFunc(all, func(known []byte) bool { return bytes.Equal(known, c.Raw) }) {
			all = append(all, c.Raw)
		}
	}
	if len(all) == len(s.certificates) {
		return der, nil
	}
	slices.SortFunc(all, bytes.Compare) // DER sorts the elements of a SET OF
	var outer contentInfo
	if err := exactly(der, &outer); err != nil {
		return nil, refused("it is no DER of RFC 5652: %w", err)
	}
	var fields []asn1.RawValue // of the SignedData
	if err := exactly(outer.Content.Bytes, &fields); err != nil {
		return nil, refused("its signed data: %w", err)
	}
	fields = slices.DeleteFunc(fields, func(f asn1.RawValue) bool {
		return f.Class == asn1.ClassContextSpecific && f.Tag == certificateSet
	})
	fields = slices.Insert(fields, certificatesAfter, asn1.RawValue{
		Class: asn1.ClassContextSpecific, Tag: certificateSet, IsCompound: true, Bytes: bytes.Join(all, nil)})
	data, err := asn1.Marshal(fields)
	if err != nil {
		return nil, refused("its signed data: %w", err)
	}
	kind, err := asn1.Marshal(outer.Type)
	if err != nil {
		return nil, refused("its type: %w", err)
	}
	return asn1.Marshal([]asn1.RawValue{{FullBytes: kind}, {Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: data}})
}

// certificatesAfter is how many fields stand before the certificates in a SignedData:
// version, digest algorithms, content.
const certificatesAfter = 3
