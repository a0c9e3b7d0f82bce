package forge

import "crypto"

// members too many, in every structure.
func memberCases() (cases []Case) {
	for _, name := range []string{"token", "wrapped", "data", "encapsulated", "wrapped-content", "signer", "signer-name", "digest-algorithm",
		"content-type", "content-type-values", "signing-value", "signature-algorithm", "info", "imprint", "imprint-algorithm"} {
		cases = append(cases, wrong("a member too many in "+name, behind(name, null)))
		if name == "digest-algorithm" || name == "imprint-algorithm" || name == "signature-algorithm" { // one null is a parameter
			cases[len(cases)-1] = wrong("a member too many in "+name, behind(name, append(null, null...)))
		}
	}
	for _, name := range []string{"certificate", "signed", "validity", "key", "extensions", "explicit-extensions", "key-algorithm", "key-usage"} {
		cases = append(cases, wrong("a member too many in a "+name, of(func(s, _ *Certificate) { s.Behind[name] = null })))
	}
	return append(cases,
		wrong("something behind the token", Token{Tail: null}),
		wrong("something behind the content", Token{Changes: Changes{Behind: map[string][]byte{"content": null}}}),
		wrong("something behind an ECDSA signature", behind("signature", null)),
		wrong("an accuracy with a member too many", instead("accuracy", TLV(tagSequence, number(1), null))),
		right("lists of revoked certificates", instead("revoked", TLV(tagContext|1))),
		right("unsigned attributes", instead("unsigned", TLV(tagContext|1, TLV(tagSequence, []byte{6, 3, 0x2a, 3, 9}, TLV(tagSet, null))))),
		wrong("unsigned attributes twice", instead("unsigned", append(TLV(tagContext|1), TLV(tagContext|1)...))),
		wrong("a length that is not the shortest", instead("gen-time", append([]byte{tagTime, 0x81, 15}, "20260101000000Z"...))),
		wrong("a length without an end", instead("digests", []byte{tagSet, 0x80, 0, 0})),
		wrong("a version that is not the shortest", instead("data-version", []byte{2, 2, 0, 3})),
		wrong("a version of nothing", instead("data-version", []byte{2, 0})),
	)
}

// the content.
func infoCases() []Case {
	extension := func(critical bool) []byte { return TLV(tagContext|1, Extension([]int{1, 2, 3}, critical, null)) }
	return []Case{
		right("everything that may be in it", Token{Changes: Changes{Instead: map[string][]byte{
			"accuracy": TLV(tagSequence, number(1)), "ordering": {1, 1, 0xff}, "nonce": number(5), "authority-name": TLV(tagContext, TLV(tagContext|4, name("signer"))), "info-extensions": extension(false),
		}}}),
		wrong("a critical extension", instead("info-extensions", extension(true))),
		wrong("an order that is neither true nor false", instead("ordering", []byte{1, 1, 1})),
		right("an order that is false", instead("ordering", []byte{1, 1, 0})),
		wrong("another version", instead("info-version", number(2))),
		wrong("another digest", instead("imprint-digest", TLV(tagOctets, make([]byte, 32)))),
		wrong("another hash function", instead("imprint-algorithm", TLV(tagSequence, oid(oidHashes[crypto.SHA512])))),
		wrong("another content", instead("encapsulated", TLV(tagSequence, oid(oidSignedData), TLV(tagContext, TLV(tagOctets, TLV(tagSequence)))))),
		wrong("another type of data", Token{Changes: Changes{Instead: map[string][]byte{"token": TLV(tagSequence, oid(oidTSTInfo), TLV(tagContext, null))}}}),
		wrong("a policy with a name that is not the shortest", instead("policy", []byte{6, 3, 0x2a, 0x80, 3})),
		wrong("a policy with a name that is cut", instead("policy", []byte{6, 2, 0x2a, 0x83})),
	}
}
