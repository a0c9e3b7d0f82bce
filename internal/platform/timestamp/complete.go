package timestamp

import (
	"bytes"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"triprize/internal/domain/fairdraw"
)

// complete returns a token with exactly the certificates from its signer's to a root: those that an
// authority leaves out are added from further ones, and others, such as cross-signed ones, go.
// Nothing of it that is signed changes. Without such a chain it is as it was.
func complete(der []byte, root fairdraw.Hash, further []*certificate) ([]byte, error) {
	s, err := parse(der)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(further, s.certificates)
	i := slices.IndexFunc(all, s.signer.isBy)
	if i < 0 {
		return nil, refused("the signer's certificate is not in it")
	}
	chain := chainTo(root, all[i], all)
	if chain == nil {
		return der, nil
	}
	raw := make([][]byte, len(chain))
	for i, c := range chain {
		raw[i] = c.raw
	}
	slices.SortFunc(raw, bytes.Compare) // DER sorts the elements of a SET OF
	return withCertificates(der, bytes.Join(raw, nil))
}

// withCertificates returns a token that parse has read with other certificates.
func withCertificates(der, certificates []byte) ([]byte, error) {
	outer := read(der, "the token").inside(asn1.SEQUENCE, "the token")
	kind := outer.raw(asn1.OBJECT_IDENTIFIER)
	data := outer.inside(explicit(0), "the token").inside(asn1.SEQUENCE, "the signed data")
	before := slices.Concat(data.raw(asn1.INTEGER), data.raw(asn1.SET), data.raw(asn1.SEQUENCE))
	data.optional(explicit(0))
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(kind)
		b.AddASN1(explicit(0), func(b *cryptobyte.Builder) {
			b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
				b.AddBytes(before)
				b.AddASN1(explicit(0), func(b *cryptobyte.Builder) { b.AddBytes(certificates) })
				b.AddBytes(data.rest)
			})
		})
	})
	return b.Bytes()
}
