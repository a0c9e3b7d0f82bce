package forge

import (
	"bytes"
	"crypto/elliptic"
	"fmt"
	"slices"
)

// long returns a token whose chain has some certificates.
func long(n int, change func([]*Certificate)) Token {
	chain := make([]*Certificate, n)
	for i := n - 1; i >= 0; i-- {
		chain[i] = &Certificate{Name: fmt.Sprint("c", i), Signer: i == 0}
		if i < n-1 {
			chain[i].Issuer = chain[i+1]
		}
		chain[i].Instead, chain[i].Behind = map[string][]byte{}, map[string][]byte{}
	}
	if change != nil {
		change(chain)
	}
	return Token{Chain: chain}
}

// in returns a token with other certificates in it than its chain.
func in(t Token, certificates func(chain []*Certificate) []*Certificate) Token {
	t.In = certificates(t.Chain)
	return t
}

// chains, from the signer to the authority.
func chainCases() []Case {
	path := func(n int64) []byte { return Extension(oidBasicConstraints, true, constraints(number(n))) }
	stranger := &Certificate{Name: "stranger"}
	issuer := func(name string, extension []byte) Token {
		return of(func(_, r *Certificate) { r.Instead[name] = extension })
	}
	more := func(extension []byte) Token {
		return of(func(_, r *Certificate) { r.Behind["extensions"] = extension })
	}
	signed := func(extension []byte) Token {
		return of(func(s, _ *Certificate) { s.Behind["extensions"] = extension })
	}
	pinned := func(c Case, at int) Case {
		c.Pinned = [][32]byte{sum(c.Token.Chain[at])}
		return c
	}
	extended := func(id []byte) []byte { return Extension(oidExtendedUsage, false, TLV(tagSequence, id)) }
	empty := TLV(tagSequence)
	cross := func() Token { // the intermediate certificate, once more from another root
		t := long(3, nil)
		old := &Certificate{Name: "old"}
		between := *t.Chain[1]
		between.Issuer, between.Serial, between.der = old, 5, nil
		between.Key = EC(elliptic.P256(), "c1")
		t.In = []*Certificate{t.Chain[0], t.Chain[1], &between, t.Chain[2], old}
		return t
	}
	cases := []Case{
		right("two intermediates", long(4, nil)),
		right("eight certificates", long(8, nil)),
		wrong("nine certificates", long(9, nil)),
		right("a certificate that is not of the chain", in(long(2, nil), func(c []*Certificate) []*Certificate { return append(slices.Clone(c), stranger) })),
		wrong("nine with one that is not of the chain", in(long(8, nil), func(c []*Certificate) []*Certificate { return append(slices.Clone(c), stranger) })),
		right("certificates in another order", in(long(4, nil), func(c []*Certificate) []*Certificate { c = slices.Clone(c); slices.Reverse(c); return c })),
		wrong("two certificates of one subject", cross()),
		wrong("a certificate twice", in(long(2, nil), func(c []*Certificate) []*Certificate { return append(slices.Clone(c), c[1]) })),
		wrong("an intermediate is missing", in(long(3, nil), func(c []*Certificate) []*Certificate { return []*Certificate{c[0], c[2]} })),
		wrong("the authority's certificate is missing", in(long(2, nil), func(c []*Certificate) []*Certificate { return c[:1] })),
		wrong("no certificates", instead("certificates", nil)),
		wrong("no signer's certificate", in(long(2, nil), func(c []*Certificate) []*Certificate { return c[1:] })),
		pinned(right("the signer is the authority", long(3, nil)), 0),
		pinned(right("the signer is the authority, and alone", in(long(2, nil), func(c []*Certificate) []*Certificate { return c[:1] })), 0),
		pinned(right("an intermediate is the authority", long(3, nil)), 1),
		pinned(right("what is behind the authority does not count", long(3, func(c []*Certificate) { c[2].Instead["basic-constraints"] = nil })), 1),
		wrong("an issuer without constraints", issuer("basic-constraints", nil)),
		wrong("an issuer that may not issue", issuer("basic-constraints", Extension(oidBasicConstraints, true, empty))),
		right("constraints that are not critical", issuer("basic-constraints", Extension(oidBasicConstraints, false, constraints()))),
		wrong("something behind the constraints", issuer("basic-constraints", Extension(oidBasicConstraints, true, constraints(number(3), null)))),
		wrong("a root of the first version", of(func(_, r *Certificate) { r.Instead["version"], r.Instead["explicit-extensions"] = nil, nil })),
		wrong("a certificate of the fourth version", of(func(s, _ *Certificate) { s.Instead["version"] = TLV(tagContext, number(3)) })),
		right("a path as long as it may be", long(4, func(c []*Certificate) { c[3].Instead["basic-constraints"] = path(2) })),
		wrong("a path longer than it may be", long(4, func(c []*Certificate) { c[3].Instead["basic-constraints"] = path(1) })),
		wrong("a path longer than an intermediate allows", long(4, func(c []*Certificate) { c[2].Instead["basic-constraints"] = path(0) })),
		wrong("a negative path", issuer("basic-constraints", path(-1))),
		right("an issuer without a key usage", issuer("key-usage", nil)),
		wrong("an issuer for signatures", issuer("key-usage", Extension(oidKeyUsage, true, usage(0x80)))),
		right("an issuer for timestamps", more(extended(oid(oidTimeStamping)))),
		right("an issuer for anything", more(extended([]byte{6, 4, 0x55, 0x1d, 0x25, 0}))),
		wrong("an issuer for servers", more(extended([]byte{6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1}))),
		wrong("an issuer of another key", of(func(s, _ *Certificate) { s.Issuer = &Certificate{Name: "root", Key: EC(elliptic.P256(), "another")} })),
		{Name: "two certificates that issue each other", Token: long(3, func(c []*Certificate) { c[2].Issuer = &Certificate{Name: "c1"} }), Pinned: [][32]byte{sum(stranger)}},
	}
	return append(cases, extensionCases(more, signed)...)
}

// extensions of the certificates of a chain.
func extensionCases(more, signed func(extension []byte) Token) []Case {
	empty := TLV(tagSequence)
	cases := []Case{
		wrong("an extension twice", more(bytes.Repeat(Extension([]int{2, 5, 29, 14}, false, TLV(tagOctets)), 2))),
		right("an unknown extension", more(Extension([]int{1, 2, 3}, false, null))),
		wrong("an unknown critical extension of an issuer", more(Extension([]int{1, 2, 3}, true, null))),
		wrong("an unknown critical extension of the signer", signed(Extension([]int{1, 2, 3}, true, null))),
		right("an unknown critical extension outside the chain", in(long(2, nil), func(c []*Certificate) []*Certificate {
			other := &Certificate{Name: "stranger", Changes: Changes{Behind: map[string][]byte{"extensions": Extension([]int{1, 2, 3}, true, null)}}}
			return append(slices.Clone(c), other)
		})),
		wrong("a certificate that is none", instead("certificates", TLV(tagContext, usualSigner.DER(), usualRoot.DER(), TLV(tagSequence)))),
		wrong("a certificate of another kind", instead("certificates", TLV(tagContext, usualSigner.DER(), usualRoot.DER(), TLV(tagContext|1, null)))),
		wrong("no extensions in an extension block", of(func(_, r *Certificate) { r.Instead["explicit-extensions"] = TLV(tagExtensions) })),
	}
	for name, id := range map[string][]int{"nameConstraints": {2, 5, 29, 30}, "policyConstraints": {2, 5, 29, 36}, "policyMappings": {2, 5, 29, 33}, "inhibitAnyPolicy": {2, 5, 29, 54}} {
		cases = append(cases, wrong(name, more(Extension(id, false, empty))), wrong(name+" of the signer", signed(Extension(id, false, empty))))
	}
	for name, e := range map[string]struct {
		id    []int
		value []byte
	}{
		"subjectKeyIdentifier":   {[]int{2, 5, 29, 14}, TLV(tagOctets, []byte("root"))},
		"subjectAltName":         {[]int{2, 5, 29, 17}, TLV(tagSequence, TLV(tagImplicit|2, []byte("tsa.example")))},
		"certificatePolicies":    {[]int{2, 5, 29, 32}, TLV(tagSequence, TLV(tagSequence, []byte{6, 4, 0x55, 0x1d, 0x20, 0}))},
		"authorityKeyIdentifier": {[]int{2, 5, 29, 35}, empty},
	} {
		cases = append(cases, right("a critical "+name, more(Extension(e.id, true, e.value))))
	}
	slices.SortStableFunc(cases[len(cases)-12:], func(a, b Case) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return cases
}
