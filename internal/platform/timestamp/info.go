package timestamp

import (
	"bytes"
	"crypto"
	_ "crypto/sha1" //nolint:gosec // RFC 2634 names certificates by SHA-1; see namesSigner
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"time"

	"triprize/internal/domain/fairdraw"
)

var (
	oidSHA256               = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidSigningCertificate   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 12}
	oidSigningCertificateV2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 47}
)

// tstInfo is TSTInfo of RFC 3161.
type tstInfo struct {
	Version    int
	Policy     asn1.ObjectIdentifier
	Imprint    imprint
	Serial     *big.Int
	GenTime    time.Time        `asn1:"generalized"`
	Accuracy   accuracy         `asn1:"optional"`
	Ordering   bool             `asn1:"optional"`
	Nonce      *big.Int         `asn1:"optional"`
	TSA        asn1.RawValue    `asn1:"optional,tag:0"`
	Extensions []pkix.Extension `asn1:"optional,tag:1"`
}

// imprint is MessageImprint of RFC 3161.
type imprint struct {
	Algorithm pkix.AlgorithmIdentifier
	Digest    []byte
}

// accuracy is Accuracy of RFC 3161.
type accuracy struct {
	Seconds int64 `asn1:"optional"`
	Millis  int64 `asn1:"optional,tag:0"`
	Micros  int64 `asn1:"optional,tag:1"`
}

func readInfo(der []byte) (tstInfo, error) {
	var info tstInfo
	if err := exactly(der, &info); err != nil {
		return info, refused("its content: %w", err)
	}
	if info.Version != 1 {
		return info, refused("its version is %d, not 1", info.Version)
	}
	for _, e := range info.Extensions {
		if e.Critical {
			return info, refused("its extension %s is critical, and unknown here", e.Id)
		}
	}
	return info, nil
}

// isAbout demands that the token is about this SHA-256 digest.
func (i tstInfo) isAbout(digest fairdraw.Hash) error {
	if !i.Imprint.Algorithm.Algorithm.Equal(oidSHA256) {
		return refused("it is about a digest that is not SHA-256")
	}
	if !bytes.Equal(i.Imprint.Digest, digest[:]) {
		return refused("it is about the digest %x", i.Imprint.Digest)
	}
	return nil
}

// duration returns the accuracy, 0 when it is left out.
func (a accuracy) duration() (time.Duration, error) {
	const most = 1_000_000_000 // seconds; more would leave a time.Duration
	if a.Seconds < 0 || a.Seconds > most || a.Millis < 0 || a.Millis > 999 || a.Micros < 0 || a.Micros > 999 {
		return 0, refused("its accuracy is out of bounds")
	}
	return time.Duration(a.Seconds)*time.Second + time.Duration(a.Millis)*time.Millisecond + time.Duration(a.Micros)*time.Microsecond, nil
}

// essCertID is ESSCertID of RFC 2634 and ESSCertIDv2 of RFC 5035, whose algorithm is
// SHA-256 when it is left out.
type essCertID struct {
	Algorithm pkix.AlgorithmIdentifier `asn1:"optional"`
	Hash      []byte
	Issuer    asn1.RawValue `asn1:"optional"`
}

type signingCertificate struct {
	IDs      []essCertID
	Policies asn1.RawValue `asn1:"optional"`
}

// namesSigner demands that the signed attributes name the signer's certificate, so that
// no other certificate of the same key can stand in for it. The first version of the
// attribute names it by SHA-1: two certificates with one SHA-1 could only be made by the
// authority that issues both.
func namesSigner(attributes map[string][]byte, signer *x509.Certificate) error {
	der, hash := attributes[oidSigningCertificateV2.String()], crypto.SHA256
	if der == nil {
		der, hash = attributes[oidSigningCertificate.String()], crypto.SHA1
	}
	var list signingCertificate
	if err := exactly(der, &list); err != nil || len(list.IDs) == 0 {
		return refused("it does not name its signer's certificate")
	}
	if name := list.IDs[0].Algorithm.Algorithm; name != nil {
		var known bool
		if hash, known = hashes[name.String()]; !known {
			return refused("it names its signer's certificate by %s, which is not accepted", name)
		}
	}
	if !bytes.Equal(list.IDs[0].Hash, sum(hash, signer.Raw)) {
		return refused("it names another certificate as its signer's")
	}
	return nil
}
