package forge

import (
	"crypto"
	"crypto/sha256"
	"slices"
	"time"
)

// Case is a token on one side of a rule.
type Case struct {
	Name   string
	Right  bool // it counts
	Token  Token
	Pinned [][32]byte // authorities of the rules; nil: the last certificate of the chain
}

// Roots returns the authorities of the rules.
func (c Case) Roots() [][32]byte {
	if c.Pinned != nil {
		return c.Pinned
	}
	return [][32]byte{c.Token.Root()}
}

// Cases returns tokens over a digest, for a round that is due at a whole second of this century.
func Cases(digest [32]byte, due time.Time) []Case {
	all := slices.Concat(signerCases(), timeCases(due), keyCases(), nameCases(), chainCases(), memberCases(), infoCases())
	for i := range all {
		all[i].Token.Digest = digest
		if all[i].Token.GenTime == "" {
			all[i].Token.GenTime = spelled(due.Add(-time.Minute))
		}
	}
	return all
}

func spelled(at time.Time) string { return at.UTC().Format("20060102150405") + "Z" }

func right(name string, t Token) Case { return Case{Name: name, Right: true, Token: t} }

func wrong(name string, t Token) Case { return Case{Name: name, Token: t} }

// instead returns a token with another structure.
func instead(name string, der []byte) Token {
	return Token{Changes: Changes{Instead: map[string][]byte{name: der}}}
}

// behind returns a token with something behind the last member of a structure.
func behind(name string, der []byte) Token {
	return Token{Changes: Changes{Behind: map[string][]byte{name: der}}}
}

// of returns a token whose signer and root are changed.
func of(change func(signer, root *Certificate)) Token {
	root := &Certificate{Name: "root"}
	signer := &Certificate{Name: "signer", Signer: true, Issuer: root}
	signer.Instead, root.Instead = map[string][]byte{}, map[string][]byte{}
	signer.Behind, root.Behind = map[string][]byte{}, map[string][]byte{}
	change(signer, root)
	return Token{Chain: []*Certificate{signer, root}}
}

// one signer, and what its certificate is for.
func signerCases() []Case {
	usages := func(first byte) Token {
		return of(func(s, _ *Certificate) { s.Instead["key-usage"] = Extension(oidKeyUsage, true, usage(first)) })
	}
	extended := func(critical bool, ids ...[]byte) Token {
		return of(func(s, _ *Certificate) {
			s.Instead["extended-key-usage"] = Extension(oidExtendedUsage, critical, TLV(tagSequence, ids...))
		})
	}
	stamping, anything, servers := oid(oidTimeStamping), []byte{0x06, 4, 0x55, 0x1d, 0x25, 0}, []byte{0x06, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1}
	return []Case{
		right("a signer", Token{}),
		wrong("two signers", Token{Signers: 2}),
		wrong("no signer", instead("signers", TLV(tagSet))),
		wrong("a signer by key identifier", func() Token {
			t := of(func(s, _ *Certificate) {
				s.Behind["extensions"] = Extension([]int{2, 5, 29, 14}, false, TLV(tagOctets, []byte("signer")))
			})
			t.Instead = map[string][]byte{"signer-name": TLV(tagImplicit, []byte("signer"))}
			return t
		}()),
		wrong("a signer by another serial number", instead("signer-serial", number(99))),
		wrong("a signer by another issuer", instead("signer-issuer", name("signer"))),
		right("a signer with contentCommitment", usages(0x40)),
		right("a signer without a key usage", of(func(s, _ *Certificate) { s.Instead["key-usage"] = nil })),
		wrong("a signer for keyEncipherment", usages(0x20)),
		wrong("a signer for certificates", usages(0x04)),
		wrong("a signer for no key usage", usages(0)),
		wrong("a signer for anything", extended(true, anything)),
		wrong("a signer for two things", extended(true, stamping, servers)),
		wrong("a signer for servers", extended(true, servers)),
		wrong("a signer for nothing", extended(true)),
		wrong("a signer without an extended key usage", of(func(s, _ *Certificate) { s.Instead["extended-key-usage"] = nil })),
		wrong("an extended key usage that is not critical", extended(false, stamping)),
	}
}

func timeCases(due time.Time) []Case {
	before := due.Add(-time.Second).UTC().Format("20060102150405")
	at := func(text string) Token { return Token{GenTime: text} }
	day := due.Add(-24 * time.Hour).UTC().Format("20060102")
	within := func(text string, accuracy ...[]byte) Token {
		t := instead("accuracy", TLV(tagSequence, accuracy...))
		t.GenTime = text
		return t
	}
	seconds, millis, micros := func(n int64) []byte { return number(n) }, func(n int64) []byte { return TLV(tagImplicit, body(number(n))) }, func(n int64) []byte { return TLV(tagImplicit|1, body(number(n))) }
	return []Case{
		right("a microsecond before the round", at(before+".999999Z")),
		right("a nanosecond before the last microsecond", at(before+".999998999Z")),
		wrong("a nanosecond after the last microsecond", at(before+".999999001Z")),
		wrong("the second of the round", at(spelled(due))),
		right("an accuracy that ends before the round", within(before+"Z", millis(999), micros(999))),
		wrong("an accuracy that ends at the round", within(before+"Z", seconds(1))),
		wrong("an accuracy with a fraction that ends at the round", within(before+".000001Z", millis(999), micros(999))),
		right("an accuracy of nothing", within(before+"Z")),
		wrong("a negative accuracy", within(before+"Z", seconds(-1))),
		wrong("an accuracy of a thousand milliseconds", within(before[:12]+"00Z", millis(1000))),
		wrong("an accuracy of a thousand microseconds", within(before[:12]+"00Z", micros(1000))),
		wrong("an accuracy beyond 2^63", within(before[:12]+"00Z", []byte{2, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0})),
		wrong("an accuracy that is not the shortest", within(before[:12]+"00Z", []byte{2, 2, 0, 0})),
		right("long before the freeze", at(spelled(due.Add(-365*24*time.Hour)))),
		wrong("a time with a zero at its end", at(before+".5000Z")),
		wrong("a time with ten digits", at(before+".1234567891Z")),
		wrong("a time with a point and no digit", at(before+".Z")),
		wrong("a time with a comma", at(before+",5Z")),
		wrong("a time with an offset", at(day+"120000+0000")),
		wrong("a time without a zone", at(day+"120000")),
		wrong("a time without seconds", at(day+"1200Z")),
		wrong("a UTCTime", instead("gen-time", TLV(tagUTCTime, []byte(before[2:]+"Z")))),
		wrong("a time with a byte order mark", at("\ufeff"+day+"120000Z")),
		wrong("hour 24", at(day+"240000Z")),
		wrong("minute 60", at(day+"126000Z")),
		wrong("second 60", at(day+"235960Z")),
		wrong("31 February", at(due.UTC().Format("2006")+"0231120000Z")),
		wrong("month 0", at(due.UTC().Format("2006")+"0001120000Z")),
		wrong("a certificate that is over", of(func(s, _ *Certificate) { s.Instead["until"] = TLV(tagUTCTime, []byte("200201000000Z")) })),
		wrong("a certificate that is to come", of(func(s, _ *Certificate) { s.Instead["from"] = TLV(tagUTCTime, []byte("390201000000Z")) })),
		wrong("a root that is over", of(func(_, r *Certificate) { r.Instead["until"] = TLV(tagUTCTime, []byte("200201000000Z")) })),
		right("the last second of a certificate", of(func(s, _ *Certificate) {
			s.Instead["until"] = TLV(tagUTCTime, []byte(spelled(due.Add(-time.Minute))[2:]))
		})),
		wrong("a microsecond after the end of a certificate", func() Token {
			t := of(func(s, _ *Certificate) { s.Instead["until"] = TLV(tagUTCTime, []byte(before[2:]+"Z")) })
			t.GenTime = before + ".000000001Z"
			return t
		}()),
		right("certificates with a GeneralizedTime", of(func(s, r *Certificate) {
			s.Instead["from"], s.Instead["until"] = TLV(tagTime, []byte("20200101000000Z")), TLV(tagTime, []byte("99991231235959Z"))
			r.Instead["until"] = TLV(tagTime, []byte("20600101000000Z"))
		})),
		wrong("a certificate with a fraction in its time", of(func(s, _ *Certificate) { s.Instead["from"] = TLV(tagTime, []byte("20200101000000.5Z")) })),
		wrong("a certificate of the year 0000", of(func(s, _ *Certificate) { s.Instead["from"] = TLV(tagTime, []byte("00000101000000Z")) })),
		wrong("a certificate without seconds in its time", of(func(s, _ *Certificate) { s.Instead["from"] = TLV(tagUTCTime, []byte("2001010000Z")) })),
		wrong("a certificate with an offset in its time", of(func(s, _ *Certificate) { s.Instead["from"] = TLV(tagUTCTime, []byte("200101000000+0000")) })),
		right("a certificate from the last century", of(func(s, _ *Certificate) { s.Instead["from"] = TLV(tagUTCTime, []byte("500101000000Z")) })),
	}
}

// sum is the hash of a certificate.
func sum(c *Certificate) [32]byte { return sha256.Sum256(c.DER()) }

// named returns a token whose signer signs with a hash.
func by(hash crypto.Hash, change func(signer, root *Certificate)) Token {
	t := of(change)
	t.Hash = hash
	return t
}
