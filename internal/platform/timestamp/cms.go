package timestamp

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // for crypto.SHA384 and crypto.SHA512
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"slices"

	"triprize/internal/domain/fairdraw"
)

var (
	oidSignedData    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidTSTInfo       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
	oidContentType   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}
	oidMessageDigest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
	oidExtKeyUsage   = asn1.ObjectIdentifier{2, 5, 29, 37}
)

// contentInfo is ContentInfo of RFC 5652.
type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"explicit,tag:0"`
}

// signedData is SignedData of RFC 5652. Parts that are not read stay raw, so that they
// can be written again byte for byte.
type signedData struct {
	Version          int
	DigestAlgorithms asn1.RawValue
	Encapsulated     contentInfo
	Certificates     asn1.RawValue `asn1:"optional,tag:0"`
	CRLs             asn1.RawValue `asn1:"optional,tag:1"`
	Signers          []signerInfo  `asn1:"set"`
}

// signerInfo is SignerInfo of RFC 5652 with issuer and serial number.
type signerInfo struct {
	Version            int
	ID                 issuerAndSerial
	DigestAlgorithm    pkix.AlgorithmIdentifier
	Signed             asn1.RawValue `asn1:"tag:0"`
	SignatureAlgorithm pkix.AlgorithmIdentifier
	Signature          []byte
	Unsigned           asn1.RawValue `asn1:"optional,tag:1"`
}

type issuerAndSerial struct {
	Issuer asn1.RawValue
	Serial *big.Int
}

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values []asn1.RawValue `asn1:"set"`
}

// signed is a parsed token.
type signed struct {
	content      []byte // the TSTInfo
	certificates []*x509.Certificate
	signer       signerInfo
}

// exactly reads a value that takes all bytes.
func exactly(der []byte, into any) error {
	rest, err := asn1.Unmarshal(der, into)
	if err == nil && len(rest) > 0 {
		err = asn1.SyntaxError{Msg: "trailing data"}
	}
	return err
}

// parse reads a token. It checks no signature.
func parse(der []byte) (signed, error) {
	var outer contentInfo
	if err := exactly(der, &outer); err != nil {
		return signed{}, refused("it is no DER of RFC 5652: %w", err)
	}
	if !outer.Type.Equal(oidSignedData) {
		return signed{}, refused("it is not signed data")
	}
	var data signedData
	if err := exactly(outer.Content.Bytes, &data); err != nil {
		return signed{}, refused("its signed data: %w", err)
	}
	if !data.Encapsulated.Type.Equal(oidTSTInfo) {
		return signed{}, refused("its content is no timestamp")
	}
	s := signed{}
	if err := exactly(data.Encapsulated.Content.Bytes, &s.content); err != nil {
		return signed{}, refused("its content: %w", err)
	}
	var err error
	if s.certificates, err = x509.ParseCertificates(data.Certificates.Bytes); err != nil {
		return signed{}, refused("its certificates: %w", err)
	}
	if len(data.Signers) != 1 {
		return signed{}, refused("it has %d signers, not one", len(data.Signers))
	}
	s.signer = data.Signers[0]
	if !s.signer.Signed.IsCompound {
		return signed{}, refused("its signed attributes are no set")
	}
	return s, nil
}

// verify checks the signature, and that it is about the content, and returns the signer's
// certificate.
func (s signed) verify() (*x509.Certificate, error) {
	attributes, err := s.attributes()
	if err != nil {
		return nil, err
	}
	hash, ok := hashes[s.signer.DigestAlgorithm.Algorithm.String()]
	if !ok {
		return nil, refused("its digest algorithm %s is not accepted", s.signer.DigestAlgorithm.Algorithm)
	}
	var kind asn1.ObjectIdentifier
	if err := exactly(attributes[oidContentType.String()], &kind); err != nil || !kind.Equal(oidTSTInfo) {
		return nil, refused("what is signed is no timestamp")
	}
	var digest []byte
	if err := exactly(attributes[oidMessageDigest.String()], &digest); err != nil || !bytes.Equal(digest, sum(hash, s.content)) {
		return nil, refused("the digest that is signed is not the content's")
	}
	i := slices.IndexFunc(s.certificates, func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawIssuer, s.signer.ID.Issuer.FullBytes) && c.SerialNumber.Cmp(s.signer.ID.Serial) == 0
	})
	if i < 0 {
		return nil, refused("the signer's certificate is not in it")
	}
	signer := s.certificates[i]
	if err := namesSigner(attributes, signer); err != nil {
		return nil, err
	}
	algorithm, err := algorithmOf(signer, s.signer.SignatureAlgorithm.Algorithm, hash)
	if err != nil {
		return nil, err
	}
	covered := slices.Clone(s.signer.Signed.FullBytes)
	covered[0] = asn1.TagSet | 0x20 // RFC 5652, 5.4: what is signed is a SET OF, not [0]
	if err := signer.CheckSignature(algorithm, covered, s.signer.Signature); err != nil {
		return nil, refused("the signature: %w", err)
	}
	return signer, nil
}

// attributes returns the signed attributes by their type: those with one value.
func (s signed) attributes() (map[string][]byte, error) {
	found := make(map[string][]byte)
	for rest := s.signer.Signed.Bytes; len(rest) > 0; {
		var a attribute
		var err error
		if rest, err = asn1.Unmarshal(rest, &a); err != nil {
			return nil, refused("its signed attributes: %w", err)
		}
		if _, twice := found[a.Type.String()]; twice || len(a.Values) != 1 {
			return nil, refused("its signed attribute %s has not one value", a.Type)
		}
		found[a.Type.String()] = a.Values[0].FullBytes
	}
	return found, nil
}

// hashes are the digests that are accepted. Others, such as SHA-1, prove nothing.
var hashes = map[string]crypto.Hash{
	"2.16.840.1.101.3.4.2.1": crypto.SHA256,
	"2.16.840.1.101.3.4.2.2": crypto.SHA384,
	"2.16.840.1.101.3.4.2.3": crypto.SHA512,
}

// signatures are the algorithms of a signature by key and hash, each with the identifiers
// under which authorities name it: the key's own (then the hash is named beside it), or
// that of key and hash together.
var signatures = []struct {
	rsa       bool
	hash      crypto.Hash
	algorithm x509.SignatureAlgorithm
	names     []string
}{
	{true, crypto.SHA256, x509.SHA256WithRSA, []string{"1.2.840.113549.1.1.1", "1.2.840.113549.1.1.11"}},
	{true, crypto.SHA384, x509.SHA384WithRSA, []string{"1.2.840.113549.1.1.1", "1.2.840.113549.1.1.12"}},
	{true, crypto.SHA512, x509.SHA512WithRSA, []string{"1.2.840.113549.1.1.1", "1.2.840.113549.1.1.13"}},
	{false, crypto.SHA256, x509.ECDSAWithSHA256, []string{"1.2.840.10045.2.1", "1.2.840.10045.4.3.2"}},
	{false, crypto.SHA384, x509.ECDSAWithSHA384, []string{"1.2.840.10045.2.1", "1.2.840.10045.4.3.3"}},
	{false, crypto.SHA512, x509.ECDSAWithSHA512, []string{"1.2.840.10045.2.1", "1.2.840.10045.4.3.4"}},
}

func algorithmOf(signer *x509.Certificate, name asn1.ObjectIdentifier, hash crypto.Hash) (x509.SignatureAlgorithm, error) {
	_, isRSA := signer.PublicKey.(*rsa.PublicKey)
	_, isECDSA := signer.PublicKey.(*ecdsa.PublicKey)
	for _, s := range signatures {
		if s.hash == hash && s.rsa == isRSA && s.rsa != isECDSA && slices.Contains(s.names, name.String()) {
			return s.algorithm, nil
		}
	}
	return 0, refused("its signature algorithm %s is not accepted with this key and %s", name, hash)
}

func sum(hash crypto.Hash, content []byte) []byte {
	h := hash.New()
	h.Write(content)
	return h.Sum(nil)
}

func hashOf(c *x509.Certificate) fairdraw.Hash { return sha256.Sum256(c.Raw) }
