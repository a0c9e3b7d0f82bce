package timestamp

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha512" // for crypto.SHA384 and crypto.SHA512
	"math/big"

	"golang.org/x/crypto/cryptobyte/asn1"
)

var (
	oidRSA = oidOf(1, 2, 840, 113549, 1, 1, 1)
	oidEC  = oidOf(1, 2, 840, 10045, 2, 1)
)

// hashes are the digests that are accepted. Others, such as SHA-1, prove nothing.
var hashes = map[oid]crypto.Hash{
	oidSHA256:                             crypto.SHA256,
	oidOf(2, 16, 840, 1, 101, 3, 4, 2, 2): crypto.SHA384,
	oidOf(2, 16, 840, 1, 101, 3, 4, 2, 3): crypto.SHA512,
}

// curves by the parameters of a key, an OBJECT IDENTIFIER.
var curves = map[oid]elliptic.Curve{
	oidOf(1, 2, 840, 10045, 3, 1, 7): elliptic.P256(),
	oidOf(1, 3, 132, 0, 34):          elliptic.P384(),
	oidOf(1, 3, 132, 0, 35):          elliptic.P521(),
}

// signatures are the names of signature algorithms that name a hash, too.
var signatures = map[oid]struct {
	key  oid
	hash crypto.Hash
}{
	oidOf(1, 2, 840, 113549, 1, 1, 11): {oidRSA, crypto.SHA256},
	oidOf(1, 2, 840, 113549, 1, 1, 12): {oidRSA, crypto.SHA384},
	oidOf(1, 2, 840, 113549, 1, 1, 13): {oidRSA, crypto.SHA512},
	oidOf(1, 2, 840, 10045, 4, 3, 2):   {oidEC, crypto.SHA256},
	oidOf(1, 2, 840, 10045, 4, 3, 3):   {oidEC, crypto.SHA384},
	oidOf(1, 2, 840, 10045, 4, 3, 4):   {oidEC, crypto.SHA512},
}

// checkSignature checks a signature over a message by a key (SubjectPublicKeyInfo). beside is the
// hash that stands beside it, and 0 in a certificate, where the algorithm must name it.
func checkSignature(keyInfo []byte, by algorithm, beside crypto.Hash, message, signature []byte) error {
	info := read(keyInfo, "a public key").inside(asn1.SEQUENCE, "a public key")
	kind := info.algorithm()
	key := info.bits()
	info.end()
	if *info.fault != nil {
		return *info.fault
	}
	if err := by.plain(); err != nil {
		return err
	}
	named, known := signatures[by.id]
	if by.id == oidRSA && beside != 0 {
		named.key, named.hash, known = oidRSA, beside, true
	}
	switch {
	case !known || named.key != kind.id:
		return refused("its signature algorithm %s is not accepted with the key %s", by.id, kind.id)
	case beside != 0 && named.hash != beside:
		return refused("its signature names %s, and its signer %s", named.hash, beside)
	}
	digest := sum(named.hash, message)
	if kind.id == oidRSA {
		return checkRSA(kind, key, named.hash, digest, signature)
	}
	return checkECDSA(kind, key, digest, signature)
}

func checkRSA(kind algorithm, key []byte, hash crypto.Hash, digest, signature []byte) error {
	if err := kind.plain(); err != nil {
		return err
	}
	outer := read(key, "an RSA key")
	list := outer.inside(asn1.SEQUENCE, "an RSA key")
	outer.end()
	modulus, exponent := list.integer(asn1.INTEGER), list.integer(asn1.INTEGER)
	list.end()
	if *list.fault != nil {
		return *list.fault
	}
	const least, most, mostExponent = 2048, 8192, 1<<31 - 1
	n, e := new(big.Int).SetBytes(modulus), new(big.Int).SetBytes(exponent)
	if modulus[0] >= 0x80 || n.BitLen() < least || n.BitLen() > most || n.Bit(0) == 0 {
		return refused("an RSA key has %d bits, or an even modulus: it must have %d to %d", n.BitLen(), least, most)
	}
	if exponent[0] >= 0x80 || e.BitLen() > 31 || e.Int64() < 3 || e.Int64() > mostExponent || e.Bit(0) == 0 {
		return refused("an RSA key has the exponent %s", e)
	}
	if err := rsa.VerifyPKCS1v15(&rsa.PublicKey{N: n, E: int(e.Int64())}, hash, digest, signature); err != nil {
		return refused("the signature: %w", err)
	}
	return nil
}

func checkECDSA(kind algorithm, point, digest, signature []byte) error {
	list := read(kind.parameters, "the curve of a key")
	id := list.oid()
	list.end()
	if *list.fault != nil {
		return *list.fault
	}
	curve, known := curves[id]
	if !known {
		return refused("a key is on the curve %s, which is not accepted", id)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return refused("a public key: %w", err)
	}
	if !ecdsa.VerifyASN1(key, digest, signature) {
		return refused("the signature is not that of the key")
	}
	return nil
}

func sum(hash crypto.Hash, content []byte) []byte {
	h := hash.New()
	h.Write(content)
	return h.Sum(nil)
}
