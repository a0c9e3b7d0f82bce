package forge

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
)

// keys and the names of algorithms.
func keyCases() []Case {
	signer := func(k Key) Token { return of(func(s, _ *Certificate) { s.Key = k }) }
	root := func(k Key) Token { return of(func(_, r *Certificate) { r.Key = k }) }
	named := func(t Token, algorithm []byte) Token {
		t.Instead = map[string][]byte{"signature-algorithm": algorithm}
		return t
	}
	rsa := RSA(2048, 65537, false)
	bare := TLV(tagSequence, oid(oidRSA), null)
	pss := TLV(tagSequence, oid([]int{1, 2, 840, 113549, 1, 1, 10}))
	compressed := func() []byte {
		_, point := EC(elliptic.P256(), "signer").public()
		return bits(append([]byte{2 + point[64]&1}, point[1:33]...))
	}
	return []Case{
		right("RSA", signer(rsa)),
		right("RSA that names no hash", named(signer(rsa), bare)),
		right("RSA of 8192 bits", signer(RSA(8192, 65537, false))),
		right("RSA with the exponent 3", root(RSA(2048, 3, false))),
		right("RSA with the largest exponent", root(RSA(2048, 1<<31-1, false))),
		wrong("RSA of 2047 bits", signer(RSA(2047, 65537, false))),
		wrong("RSA of 1024 bits", root(RSA(1024, 65537, false))),
		wrong("RSA of 8193 bits", signer(RSA(8193, 65537, false))),
		wrong("RSA of 8200 bits in a root", root(RSA(8200, 65537, false))),
		wrong("RSA with the exponent 1", signer(RSA(2048, 1, false))),
		wrong("RSA with an exponent above 2^31", signer(RSA(2048, 1<<31+11, false))),
		wrong("RSA with an even modulus", root(RSA(2048, 65537, true))),
		wrong("RSA-PSS by name", named(signer(rsa), pss)),
		wrong("RSA that names another hash", named(signer(rsa), TLV(tagSequence, oid(oidRSAWith[crypto.SHA512]), null))),
		wrong("RSA that names ECDSA", named(signer(rsa), TLV(tagSequence, oid(oidECDSAWith[crypto.SHA256])))),
		wrong("RSA with other parameters", named(signer(rsa), TLV(tagSequence, oid(oidRSAWith[crypto.SHA256]), number(1)))),
		right("P-384", by(crypto.SHA384, func(s, r *Certificate) {
			s.Key, r.Key, s.Hash = EC(elliptic.P384(), "s"), EC(elliptic.P384(), "r"), crypto.SHA384
		})),
		right("P-521", by(crypto.SHA512, func(s, r *Certificate) {
			s.Key, r.Key, s.Hash = EC(elliptic.P521(), "s"), EC(elliptic.P521(), "r"), crypto.SHA512
		})),
		right("a hash longer than the key", by(crypto.SHA512, func(*Certificate, *Certificate) {})),
		wrong("P-224", signer(EC(elliptic.P224(), "s"))),
		wrong("P-224 in a root", root(EC(elliptic.P224(), "r"))),
		wrong("a key that is compressed", of(func(s, _ *Certificate) { s.Instead["point"] = compressed() })),
		wrong("a key that is no point", of(func(s, _ *Certificate) { s.Instead["point"] = bits(append([]byte{4}, bytes.Repeat([]byte{1}, 64)...)) })),
		wrong("a key with unused bits", of(func(s, _ *Certificate) {
			_, point := EC(elliptic.P256(), "signer").public()
			s.Instead["point"] = TLV(tagBits, []byte{1}, point)
		})),
		wrong("ECDSA that names only its key", named(signer(nil), TLV(tagSequence, oid(oidEC)))),
		wrong("ECDSA that names another hash", named(signer(nil), TLV(tagSequence, oid(oidECDSAWith[crypto.SHA384])))),
		wrong("ECDSA that names SHA-224", named(signer(nil), TLV(tagSequence, oid([]int{1, 2, 840, 10045, 4, 3, 1})))),
		wrong("a signature algorithm with a name that is not the shortest", named(signer(nil), TLV(tagSequence, []byte{6, 9, 0x2a, 0x80, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2}))),
		right("ECDSA with a null", named(signer(nil), TLV(tagSequence, oid(oidECDSAWith[crypto.SHA256]), null))),
		right("a digest algorithm with a null", instead("digest-algorithm", TLV(tagSequence, oid(oidHashes[crypto.SHA256]), null))),
		wrong("a digest algorithm with other parameters", instead("digest-algorithm", TLV(tagSequence, oid(oidHashes[crypto.SHA256]), number(1)))),
		wrong("a signer with SHA-1", by(crypto.SHA1, func(*Certificate, *Certificate) {})),
		wrong("a certificate with SHA-1", of(func(s, _ *Certificate) { s.Hash = crypto.SHA1 })),
		right("a root that signs itself with SHA-1", of(func(_, r *Certificate) { r.Hash = crypto.SHA1 })),
		wrong("a certificate with another algorithm inside", of(func(s, _ *Certificate) {
			s.Instead["inner-algorithm"] = TLV(tagSequence, oid(oidECDSAWith[crypto.SHA384]))
		})),
		wrong("a certificate that names only the key of its issuer", of(func(s, r *Certificate) {
			r.Key = rsa
			s.Instead["inner-algorithm"], s.Instead["outer-algorithm"] = bare, bare
		})),
		wrong("another signature", instead("signature", TLV(tagOctets, EC(elliptic.P256(), "signer").sign(crypto.SHA256, make([]byte, 32))))),
		wrong("a signature of zeros", instead("signature", TLV(tagOctets, TLV(tagSequence, number(0), number(0))))),
		wrong("an RSA signature with a byte less", func() Token {
			t := signer(rsa)
			t.Instead = map[string][]byte{"signature": TLV(tagOctets, make([]byte, 255))}
			return t
		}()),
		wrong("a certificate with another signature", of(func(s, _ *Certificate) {
			s.Instead["signature"] = bits(EC(elliptic.P256(), "root").sign(crypto.SHA256, make([]byte, 32)))
		})),
	}
}

// ways to name the signer's certificate.
func nameCases() []Case {
	of := func(hash crypto.Hash) []byte { return digestOf(hash, usualSigner.DER()) }
	id := func(members ...[]byte) []byte { return TLV(tagSequence, members...) }
	algorithm := func(hash crypto.Hash) []byte { return TLV(tagSequence, oid(oidHashes[hash])) }
	octets := func(b []byte) []byte { return TLV(tagOctets, b) }
	value := func(ids ...[]byte) []byte { return TLV(tagSequence, TLV(tagSequence, ids...)) }
	v1 := func(ids ...[]byte) []byte {
		return TLV(tagSequence, oid(oidSigningCertificate), TLV(tagSet, value(ids...)))
	}
	v2 := func(ids ...[]byte) []byte { return TLV(tagSequence, oid(oidSigningV2), TLV(tagSet, value(ids...))) }
	as := func(attributes ...[]byte) Token { return instead("signing-certificate", bytes.Join(attributes, nil)) }
	sha1, sha256 := id(octets(of(crypto.SHA1))), id(octets(of(crypto.SHA256)))
	other := octets(make([]byte, 32))
	serial := TLV(tagSequence, TLV(tagSequence, TLV(tagContext|4, name("root"))), number(1))
	return []Case{
		right("named by SHA-1", Token{Version1: true}),
		right("named twice", as(v1(sha1), v2(sha256))),
		right("named by SHA-256 in full", as(v2(id(algorithm(crypto.SHA256), octets(of(crypto.SHA256)))))),
		right("named by SHA-512", as(v2(id(algorithm(crypto.SHA512), octets(of(crypto.SHA512)))))),
		right("named with issuer and serial number", as(v2(id(octets(of(crypto.SHA256)), serial)))),
		right("named with another certificate behind", as(v2(sha256, id(other)))),
		right("named with policies", as(TLV(tagSequence, oid(oidSigningV2), TLV(tagSet, TLV(tagSequence, TLV(tagSequence, sha256), TLV(tagSequence)))))),
		wrong("not named", as()),
		wrong("another certificate named", as(v2(id(other)))),
		wrong("named with something behind that is no DER", as(v2(sha256, []byte{tagSequence, 0x80, 0, 0}))),
		wrong("another certificate named first", as(v2(id(other), sha256))),
		wrong("another certificate named by SHA-1", as(v1(id(octets(make([]byte, 20)))))),
		wrong("named right by SHA-1 only", as(v1(sha1), v2(id(other)))),
		wrong("named wrong by SHA-1 only", as(v1(id(octets(make([]byte, 20)))), v2(sha256))),
		wrong("named by SHA-1 in the second version", as(v2(id(algorithm(crypto.SHA1), octets(of(crypto.SHA1)))))),
		wrong("the first version with an algorithm", as(v1(id(algorithm(crypto.SHA1), octets(of(crypto.SHA1)))))),
		wrong("the first version with SHA-256", as(v1(id(algorithm(crypto.SHA256), octets(of(crypto.SHA256)))))),
		wrong("named in an empty list", as(v2())),
		wrong("named in the same attribute twice", as(v2(sha256), v2(sha256))),
		wrong("named in an attribute with two values", instead("signing-certificate", TLV(tagSequence, oid(oidSigningV2), TLV(tagSet, value(sha256), value(sha256))))),
		wrong("something behind the names", instead("signing-certificate", TLV(tagSequence, oid(oidSigningV2), TLV(tagSet, TLV(tagSequence, TLV(tagSequence, sha256), null))))),
		wrong("something behind a name", as(v2(id(octets(of(crypto.SHA256)), serial, null)))),
		wrong("no type of the content", instead("content-type", []byte{})),
		wrong("another type of the content", instead("content-type", TLV(tagSequence, oid(oidContentType), TLV(tagSet, oid(oidSignedData))))),
		wrong("no digest of the content", instead("message-digest", []byte{})),
		wrong("another digest of the content", instead("digest", other)),
		right("another attribute", behind("attributes", TLV(tagSequence, []byte{6, 3, 0x2a, 3, 9}, TLV(tagSet, null)))),
		wrong("another attribute twice", behind("attributes", bytes.Repeat(TLV(tagSequence, []byte{6, 3, 0x2a, 3, 9}, TLV(tagSet, null)), 2))),
		wrong("another attribute without a value", behind("attributes", TLV(tagSequence, []byte{6, 3, 0x2a, 3, 9}, TLV(tagSet)))),
	}
}
