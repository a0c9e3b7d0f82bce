package timestamp

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/testkit/property"
)

// forge makes tokens that no real authority would sign. The zero value makes a good one.
type forge struct {
	usages      []x509.ExtKeyUsage // of the signer; nil: timeStamping, critical
	notCritical bool
	genTime     time.Time // zero: now

	info       func(*tstInfo)
	attributes func([]attribute) []attribute
	data       func(*signedData)
	signer     func(*signerInfo)
	named      *x509.Certificate // nil: the signer's
	content    []byte            // replaces the content after it was signed
}

var forgedDigest = fairdraw.Hash(sha256.Sum256([]byte("forged")))

var validFrom, validTo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)

func certificateOf(t testing.TB, template, issuer *x509.Certificate, key crypto.Signer, issuerKey crypto.Signer) *x509.Certificate {
	t.Helper()
	template.NotBefore, template.NotAfter = validFrom, validTo
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustMarshal(t testing.TB, value any, params string) []byte {
	t.Helper()
	der, err := asn1.MarshalWithParams(value, params)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// strike makes the token, and the hash of its root.
func (f forge) strike(t testing.TB) (token []byte, root fairdraw.Hash) {
	t.Helper()
	rootKey, key := newKey(t), newKey(t)
	rootTemplate := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootCertificate := certificateOf(t, rootTemplate, rootTemplate, rootKey, rootKey)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "signer"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: f.usages}
	if f.usages == nil {
		oid := mustMarshal(t, []asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}}, "")
		template.ExtraExtensions = []pkix.Extension{{Id: oidExtKeyUsage, Critical: !f.notCritical, Value: oid}}
	}
	signer := certificateOf(t, template, rootCertificate, key, rootKey)

	if f.genTime.IsZero() {
		f.genTime = time.Now()
	}
	sha := pkix.AlgorithmIdentifier{Algorithm: oidSHA256}
	info := tstInfo{Version: 1, Policy: asn1.ObjectIdentifier{1, 2, 3}, Imprint: imprint{sha, forgedDigest[:]}, Serial: big.NewInt(7),
		GenTime: f.genTime.UTC().Truncate(time.Second), Accuracy: accuracy{Seconds: 1, Millis: 2, Micros: 3}, Nonce: big.NewInt(5)}
	if f.info != nil {
		f.info(&info)
	}
	content := mustMarshal(t, info, "")
	named := signer
	if f.named != nil {
		named = f.named
	}
	digest, name := sha256.Sum256(content), sha256.Sum256(named.Raw)
	value := func(v any) []asn1.RawValue { return []asn1.RawValue{{FullBytes: mustMarshal(t, v, "")}} }
	attributes := []attribute{{oidContentType, value(oidTSTInfo)}, {oidMessageDigest, value(digest[:])},
		{oidSigningCertificateV2, value(signingCertificate{IDs: []essCertID{{Hash: name[:]}}})}}
	if f.attributes != nil {
		attributes = f.attributes(attributes)
	}
	covered := mustMarshal(t, attributes, "set")
	hashed := sha256.Sum256(covered)
	signature, err := ecdsa.SignASN1(rand.Reader, key, hashed[:])
	if err != nil {
		t.Fatal(err)
	}
	attributeBytes := bytes.Clone(covered)
	attributeBytes[0] = 0xa0
	si := signerInfo{Version: 1, ID: issuerAndSerial{asn1.RawValue{FullBytes: signer.RawIssuer}, signer.SerialNumber}, DigestAlgorithm: sha,
		Signed: asn1.RawValue{FullBytes: attributeBytes}, SignatureAlgorithm: pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}}, Signature: signature}
	if f.signer != nil {
		f.signer(&si)
	}
	if f.content != nil {
		content = f.content
	}
	explicit := func(der []byte) asn1.RawValue {
		return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: der}
	}
	data := signedData{Version: 3, DigestAlgorithms: asn1.RawValue{FullBytes: mustMarshal(t, []pkix.AlgorithmIdentifier{sha}, "set")},
		Encapsulated: contentInfo{oidTSTInfo, explicit(mustMarshal(t, content, ""))},
		Certificates: explicit(bytes.Join([][]byte{signer.Raw, rootCertificate.Raw}, nil)), Signers: []signerInfo{si}}
	if f.data != nil {
		f.data(&data)
	}
	return mustMarshal(t, contentInfo{oidSignedData, explicit(mustMarshal(t, data, ""))}, ""), hashOf(rootCertificate)
}

func TestAForgedTokenThatIsGoodInEverythingHolds(t *testing.T) {
	t.Parallel()
	token, root := forge{}.strike(t) // else the test below would prove nothing
	got, err := Check(token, forgedDigest, []fairdraw.Hash{root})
	if err != nil || got.Accuracy != time.Second+2*time.Millisecond+3*time.Microsecond {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatNoAuthorityWouldSignIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	drop := func(oid asn1.ObjectIdentifier) func([]attribute) []attribute {
		return func(all []attribute) (kept []attribute) {
			for _, a := range all {
				if !a.Type.Equal(oid) {
					kept = append(kept, a)
				}
			}
			return kept
		}
	}
	replace := func(oid asn1.ObjectIdentifier, v any) func([]attribute) []attribute {
		return func(all []attribute) []attribute {
			for i := range all {
				if all[i].Type.Equal(oid) {
					all[i].Values = []asn1.RawValue{{FullBytes: mustMarshal(t, v, "")}}
				}
			}
			return all
		}
	}
	otherKey := newKey(t)
	other := &x509.Certificate{SerialNumber: big.NewInt(9)}
	other = certificateOf(t, other, other, otherKey, otherKey)
	sha1Name := sha1.Sum([]byte("no certificate"))
	for name, c := range map[string]struct {
		forge
		want string
	}{
		"a certificate for servers":      {forge{usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, "not for timestamps alone"},
		"a certificate for two things":   {forge{usages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping, x509.ExtKeyUsageCodeSigning}}, "not for timestamps alone"},
		"a certificate for anything":     {forge{usages: []x509.ExtKeyUsage{}}, "not for timestamps alone"},
		"a usage that is not critical":   {forge{notCritical: true}, "does not say as critical"},
		"after its certificate's end":    {forge{genTime: validTo.Add(time.Hour)}, "expired"},
		"before its certificate":         {forge{genTime: validFrom.Add(-time.Hour)}, "not yet valid"},
		"another version":                {forge{info: func(i *tstInfo) { i.Version = 2 }}, "version"},
		"another digest":                 {forge{info: func(i *tstInfo) { i.Imprint.Digest = make([]byte, 32) }}, "about the digest 00"},
		"another hash function":          {forge{info: func(i *tstInfo) { i.Imprint.Algorithm.Algorithm = oidMessageDigest }}, "not SHA-256"},
		"a negative accuracy":            {forge{info: func(i *tstInfo) { i.Accuracy.Seconds = -5 }}, "accuracy"},
		"an accuracy beyond every clock": {forge{info: func(i *tstInfo) { i.Accuracy.Seconds = 1 << 60 }}, "accuracy"},
		"a thousand milliseconds":        {forge{info: func(i *tstInfo) { i.Accuracy.Millis = 1000 }}, "accuracy"},
		"an unknown critical extension":  {forge{info: func(i *tstInfo) { i.Extensions = []pkix.Extension{{Id: oidTSTInfo, Critical: true}} }}, "critical"},
		"a content that was not signed":  {forge{content: []byte{0x30, 0}}, "not the content's"},
		"no digest of the content":       {forge{attributes: drop(oidMessageDigest)}, "not the content's"},
		"no type of the content":         {forge{attributes: drop(oidContentType)}, "no timestamp"},
		"another type of the content":    {forge{attributes: replace(oidContentType, oidSignedData)}, "no timestamp"},
		"no name of the signer":          {forge{attributes: drop(oidSigningCertificateV2)}, "does not name"},
		"another signer's name":          {forge{named: other}, "names another certificate"},
		"a SHA-1 name of another": {forge{attributes: func(a []attribute) []attribute {
			a[2].Type = oidSigningCertificate
			return replace(oidSigningCertificate, signingCertificate{IDs: []essCertID{{Hash: sha1Name[:]}}})(a)
		}}, "names another"},
		"two digests of the content":      {forge{attributes: func(a []attribute) []attribute { return append(a, a[1]) }}, "has not one value"},
		"a signature that covers nothing": {forge{signer: func(s *signerInfo) { s.Signature = []byte{0x30, 6, 2, 1, 1, 2, 1, 1} }}, "the signature"},
		"SHA-1":                           {forge{signer: func(s *signerInfo) { s.DigestAlgorithm.Algorithm = asn1.ObjectIdentifier{1, 3, 14, 3, 2, 26} }}, "not accepted"},
		"an algorithm of other keys": {forge{signer: func(s *signerInfo) {
			s.SignatureAlgorithm.Algorithm = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}
		}}, "not accepted with this key"},
		"a signer who is not there":           {forge{signer: func(s *signerInfo) { s.ID.Serial = big.NewInt(3) }}, "is not in it"},
		"two signers":                         {forge{data: func(d *signedData) { d.Signers = append(d.Signers, d.Signers[0]) }}, "2 signers"},
		"no signer":                           {forge{data: func(d *signedData) { d.Signers = nil }}, "0 signers"},
		"no certificates":                     {forge{data: func(d *signedData) { d.Certificates = asn1.RawValue{} }}, "is not in it"},
		"certificates that are none":          {forge{data: func(d *signedData) { d.Certificates.Bytes = []byte{0x30, 0} }}, "its certificates"},
		"a content that calls itself another": {forge{data: func(d *signedData) { d.Encapsulated.Type = oidSignedData }}, "no timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, root := c.strike(t)
			if _, err := Check(token, forgedDigest, []fairdraw.Hash{root}); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestATokenUnderAnotherRootThanThePinnedOnesIsRefused(t *testing.T) {
	t.Parallel()
	token, _ := forge{}.strike(t)
	_, root := forge{}.strike(t)
	for _, pinned := range [][]fairdraw.Hash{nil, {root}, {{}, root}} {
		if _, err := Check(token, forgedDigest, pinned); !errors.Is(err, ErrToken) {
			t.Errorf("pinned %v: %v", pinned, err)
		}
	}
}

// The time and the authority of a token cannot be changed, whichever byte is: what the
// signature covers (content, attributes, certificates, the signature itself) makes the
// check fail, and the rest says nothing.
func TestNoByteOfATokenChangesWhatItSays(t *testing.T) {
	t.Parallel()
	token, root := forge{}.strike(t)
	want, err := Check(token, forgedDigest, []fairdraw.Hash{root})
	if err != nil {
		t.Fatal(err)
	}
	s, err := parse(token)
	if err != nil {
		t.Fatal(err)
	}
	covered := make([]bool, len(token))
	for _, part := range [][]byte{s.content, s.signer.Signed.FullBytes, s.signer.Signature, s.certificates[0].Raw, s.certificates[1].Raw} {
		at := bytes.Index(token, part)
		for i := range part {
			covered[at+i] = true
		}
	}
	flips := []byte{0x01, 0x20, 0x80, 0xff}
	for _, n := range property.Sample(t, len(token)*len(flips)) {
		i, flip := n/len(flips), flips[n%len(flips)]
		changed := bytes.Clone(token)
		changed[i] ^= flip
		got, err := Check(changed, forgedDigest, []fairdraw.Hash{root})
		if covered[i] && err == nil {
			t.Errorf("byte %d of %d is covered, and its flip %#x passes", i, len(token), flip)
		}
		if err == nil && (got.Authority != want.Authority || !got.GenTime.Equal(want.GenTime) || got.Accuracy != want.Accuracy) {
			t.Errorf("the flip %#x of byte %d says %+v", flip, i, got)
		}
	}
}

func TestTheRootIsAddedToATokenOnceAndNothingElseChanges(t *testing.T) {
	t.Parallel()
	var root *x509.Certificate
	whole, hash := forge{}.strike(t)
	s, err := parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	root = s.certificates[1]
	if same, err := complete(whole, []*x509.Certificate{root}); err != nil || !bytes.Equal(same, whole) {
		t.Errorf("a token that has its root is written anew: %v", err)
	}
	for name, certificates := range map[string]asn1.RawValue{
		"no certificates": {},
		"only the signer": {Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: s.certificates[0].Raw},
	} {
		var outer contentInfo
		var data signedData
		if err := errors.Join(exactly(whole, &outer), exactly(outer.Content.Bytes, &data)); err != nil {
			t.Fatal(err)
		}
		data.Certificates = certificates
		outer.Content = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: mustMarshal(t, data, "")}
		less := mustMarshal(t, outer, "")
		if _, err := Check(less, forgedDigest, []fairdraw.Hash{hash}); err == nil {
			t.Errorf("%s: it holds without its root", name)
		}
		more, err := complete(less, []*x509.Certificate{root, s.certificates[0]})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Check(more, forgedDigest, []fairdraw.Hash{hash})
		if err != nil || got.Authority != hash {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzCheckNeverPanicsAndNeverAcceptsAnotherDigest(f *testing.F) {
	token, root := forge{}.strike(f)
	f.Add(token)
	f.Add(token[:len(token)/2])
	f.Add([]byte{0x30, 0x80, 0, 0})
	other := fairdraw.Hash(sha256.Sum256([]byte("another")))
	f.Fuzz(func(t *testing.T, der []byte) {
		if _, err := Check(der, other, []fairdraw.Hash{root}); !errors.Is(err, ErrToken) {
			t.Errorf("%x: %v", der, err)
		}
		_, _ = complete(der, nil)
		_, _ = tokenOf(der)
	})
}
