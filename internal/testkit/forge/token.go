package forge

import (
	"bytes"
	"cmp"
	"crypto"
	_ "crypto/sha1" //nolint:gosec // RFC 2634 names certificates by SHA-1
	"crypto/sha256"
	"encoding/asn1"
)

var (
	oidSignedData         = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidTSTInfo            = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
	oidContentType        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}
	oidMessageDigest      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
	oidSigningCertificate = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 12}
	oidSigningV2          = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 47}
)

// Token says what a token is like. By default its chain is a signer and the root that issued it,
// both in it.
type Token struct {
	Digest  [32]byte
	GenTime string         // as it is spelled
	Chain   []*Certificate // from the signer to the root
	In      []*Certificate // in the token; nil: the chain
	Hash    crypto.Hash    // of the signer; 0: SHA-256
	Changes

	// Version1 names the signer's certificate by SHA-1 (RFC 2634) instead of by RFC 5035.
	Version1 bool
	Tail     []byte // behind the token
	Signers  int    // how often the signer is there; 0: once
}

// Root returns the SHA-256 of the last certificate of the chain.
func (t Token) Root() [32]byte {
	chain := t.chain()
	return sha256.Sum256(chain[len(chain)-1].DER())
}

var (
	usualRoot   = &Certificate{Name: "root"}
	usualSigner = &Certificate{Name: "signer", Signer: true, Issuer: usualRoot}
)

func (t Token) chain() []*Certificate {
	if t.Chain != nil {
		return t.Chain
	}
	return []*Certificate{usualSigner, usualRoot}
}

// DER returns the token. Its structures: token, wrapped, data, data-version, digests, encapsulated, wrapped-content,
// content, certificates, revoked, signers, signer, signer-version, signer-name, signer-issuer, signer-serial,
// digest-algorithm, attributes, signature-algorithm, signature, unsigned; those of attributes and of info.
func (t Token) DER() []byte {
	hash, signer := cmp.Or(t.Hash, crypto.SHA256), t.chain()[0]
	content := t.info()
	attributes := t.attributes(hash, content, signer.DER())
	covered := append([]byte{tagSet}, attributes[1:]...)
	certificates := [][]byte{}
	in := t.In
	if in == nil {
		in = t.chain()
	}
	for _, c := range in {
		certificates = append(certificates, c.DER())
	}
	issuer := signer.Issuer
	if issuer == nil {
		issuer = signer
	}
	one := t.is("signer", tagSequence, t.is("signer-version", tagInteger, []byte{1}),
		t.is("signer-name", tagSequence, t.is("signer-issuer", tagSequence, body(name(issuer.Name))), t.is("signer-serial", tagInteger, []byte{signer.Serial + 1})),
		t.is("digest-algorithm", tagSequence, oid(oidHashes[hash])), attributes,
		t.is("signature-algorithm", tagSequence, body(signer.key().algorithm(hash))),
		t.is("signature", tagOctets, signer.key().sign(hash, digestOf(hash, covered))), t.Instead["unsigned"])
	data := t.is("data", tagSequence, t.is("data-version", tagInteger, []byte{3}), t.is("digests", tagSet, TLV(tagSequence, oid(oidHashes[hash]))),
		t.is("encapsulated", tagSequence, oid(oidTSTInfo), t.is("wrapped-content", tagContext, t.is("content", tagOctets, content))),
		t.is("certificates", tagContext, certificates...), t.Instead["revoked"], t.is("signers", tagSet, bytes.Repeat(one, max(1, t.Signers))))
	return append(t.is("token", tagSequence, oid(oidSignedData), t.is("wrapped", tagContext, data)), t.Tail...)
}

// attributes returns the signed attributes. Their structures: content-type, message-digest, signing-certificate
// (of either version, with its value, ids, first-id and id-hash), signing-certificate-v1.
func (t Token) attributes(hash crypto.Hash, content, signer []byte) []byte {
	id, by := oidSigningV2, crypto.SHA256
	if t.Version1 {
		id, by = oidSigningCertificate, crypto.SHA1
	}
	attribute := func(name string, id asn1.ObjectIdentifier, value []byte) []byte {
		return t.is(name, tagSequence, oid(id), t.is(name+"-values", tagSet, value))
	}
	named := t.is("signing-value", tagSequence, t.is("ids", tagSequence, t.is("first-id", tagSequence, t.is("id-hash", tagOctets, digestOf(by, signer)))))
	return t.is("attributes", tagContext, attribute("content-type", oidContentType, oid(oidTSTInfo)),
		attribute("message-digest", oidMessageDigest, t.is("digest", tagOctets, digestOf(hash, content))), attribute("signing-certificate", id, named))
}

// info returns the TSTInfo. Its structures: info, info-version, policy, imprint, imprint-algorithm, imprint-digest,
// serial, gen-time, accuracy, ordering, nonce, authority-name, info-extensions.
func (t Token) info() []byte {
	return t.is("info", tagSequence, t.is("info-version", tagInteger, []byte{1}), t.is("policy", 0x06, []byte{0x2a, 0x03}),
		t.is("imprint", tagSequence, t.is("imprint-algorithm", tagSequence, oid(oidHashes[crypto.SHA256])), t.is("imprint-digest", tagOctets, t.Digest[:])),
		t.is("serial", tagInteger, []byte{7}), t.is("gen-time", tagTime, []byte(t.GenTime)),
		bytes.Join([][]byte{t.Instead["accuracy"], t.Instead["ordering"], t.Instead["nonce"], t.Instead["authority-name"], t.Instead["info-extensions"]}, nil))
}
