package timestamp

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/testkit/forge"
	"triprize/internal/testkit/property"
)

var (
	forgedDigest = fairdraw.Hash(sha256.Sum256([]byte("forged")))
	forgedDue    = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
)

func pinnedBy(c forge.Case) (roots []fairdraw.Hash) {
	for _, root := range c.Roots() {
		roots = append(roots, root)
	}
	return roots
}

// counts tells whether a token of a case counts.
func counts(c forge.Case) error {
	token, err := Check(c.Token.DER(), forgedDigest, pinnedBy(c))
	if err == nil && !token.Before(forgedDue) {
		err = errors.New("it is not before the round")
	}
	return err
}

// stricter are tokens that count and that openssl refuses: it looks at certificates by today's clock, at
// entries behind the signer's own, and knows fewer critical extensions.
var stricter = []string{"the last second of a certificate", "named with another certificate behind", "a critical authorityKeyIdentifier", "a critical subjectKeyIdentifier"}

// openssl checks signatures, certificates and names by itself. It takes more than our rules do, so
// it is asked about tokens that count, and about those with a wrong signature.
func TestOpensslAgreesAboutTokensThatCountAndAboutWrongSignatures(t *testing.T) {
	t.Parallel()
	wrongSignatures := 0
	for _, c := range forge.Cases(forgedDigest, forgedDue) {
		if err := counts(c); (err == nil) != c.Right {
			t.Errorf("%s: %v", c.Name, err)
		}
		signature := strings.Contains(c.Name, "signature of zeros") || strings.Contains(c.Name, "another signature") || c.Name == "an issuer of another key" || c.Name == "another digest of the content"
		if signature {
			wrongSignatures++
		}
		if !c.Right && !signature || slices.Contains(stricter, c.Name) {
			continue
		}
		if err := openssl(t, c); (err == nil) != c.Right {
			t.Errorf("openssl does not agree about %s: %v", c.Name, err)
		}
	}
	if wrongSignatures != 5 {
		t.Errorf("%d tokens have a wrong signature", wrongSignatures)
	}
}

// openssl returns nil if the program takes a token under the authority of a case.
func openssl(t *testing.T, c forge.Case) error {
	t.Helper()
	dir := t.TempDir()
	root := []byte{}
	for _, one := range c.Token.Chain {
		if sha256.Sum256(one.DER()) == c.Roots()[0] {
			root = one.DER()
		}
	}
	if len(root) == 0 {
		s, err := parse(c.Token.DER())
		if err != nil {
			t.Fatal(err)
		}
		root = s.certificates[len(s.certificates)-1].raw
	}
	files := map[string][]byte{"token": c.Token.DER(), "root.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root})}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "openssl", "ts", "-verify", "-digest", forgedDigest.String(), "-in", "token", "-token_in", "-CAfile", "root.pem", "-partial_chain")
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func strike(t testing.TB) (token []byte, root fairdraw.Hash) {
	t.Helper()
	f := forge.Token{Digest: forgedDigest, GenTime: "20261101110000.5Z"}
	return f.DER(), f.Root()
}

func TestATokenUnderAnotherRootThanThePinnedOnesIsRefused(t *testing.T) {
	t.Parallel()
	token, root := strike(t)
	for _, pinned := range [][]fairdraw.Hash{nil, {{}}, {{}, {1}}} {
		if _, err := Check(token, forgedDigest, pinned); !errors.Is(err, ErrToken) {
			t.Errorf("pinned %v: %v", pinned, err)
		}
	}
	if got, err := Check(token, forgedDigest, []fairdraw.Hash{{1}, root}); err != nil || got.Authority != root {
		t.Errorf("%+v, %v", got, err)
	}
}

// The time and the authority of a token cannot be changed, whichever byte is: what the
// signature covers (content, attributes, certificates, the signature itself) makes the
// check fail, and the rest says nothing.
func TestNoByteOfATokenChangesWhatItSays(t *testing.T) {
	t.Parallel()
	token, root := strike(t)
	want, err := Check(token, forgedDigest, []fairdraw.Hash{root})
	if err != nil {
		t.Fatal(err)
	}
	s, err := parse(token)
	if err != nil {
		t.Fatal(err)
	}
	covered := make([]bool, len(token))
	for _, part := range [][]byte{s.content, s.signer.attributes, s.signer.signature, s.certificates[0].raw, s.certificates[1].raw} {
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

// An authority may leave certificates out, or send more than its chain, such as cross-signed ones:
// what is stored has the chain and nothing else.
func TestAStoredTokenHasTheCertificatesOfItsChainAndNoOthers(t *testing.T) {
	t.Parallel()
	old := &forge.Certificate{Name: "old"}
	root := &forge.Certificate{Name: "root"}
	between := &forge.Certificate{Name: "between", Issuer: root}
	crossed := &forge.Certificate{Name: "between", Issuer: old, Serial: 5}
	signer := &forge.Certificate{Name: "signer", Signer: true, Issuer: between}
	whole := forge.Token{Digest: forgedDigest, GenTime: "20261101110000Z", Chain: []*forge.Certificate{signer, between, root}}
	var further []*certificate
	for _, c := range []*forge.Certificate{root, between} {
		read, err := parseCertificate(c.DER())
		if err != nil {
			t.Fatal(err)
		}
		further = append(further, read)
	}
	hash := fairdraw.Hash(whole.Root())
	var first []byte
	for name, in := range map[string][]*forge.Certificate{
		"the chain": {signer, between, root}, "only the signer": {signer}, "without the root": {between, signer},
		"a cross-signed one": {crossed, signer, between, root, old}, "only the cross-signed one": {old, crossed, signer},
	} {
		token := whole
		token.In = in
		stored, err := complete(token.DER(), hash, further)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Check(stored, forgedDigest, []fairdraw.Hash{hash})
		if err != nil || got.Authority != hash {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		s, err := parse(stored)
		if err != nil || len(s.certificates) != 3 {
			t.Errorf("%s: %d certificates are stored, %v", name, len(s.certificates), err)
		}
		if again, err := complete(stored, hash, further); err != nil || !bytes.Equal(again, stored) {
			t.Errorf("%s: it is not the same once more: %v", name, err)
		}
		first = stored
	}
	if same, err := complete(first, fairdraw.Hash{1}, further); err != nil || !bytes.Equal(same, first) {
		t.Errorf("a token of another authority is changed: %v", err)
	}
}

func FuzzCheckNeverPanicsAndNeverAcceptsAnotherDigest(f *testing.F) {
	token, root := strike(f)
	f.Add(token)
	f.Add(token[:len(token)/2])
	f.Add([]byte{0x30, 0x80, 0, 0})
	other := fairdraw.Hash(sha256.Sum256([]byte("another")))
	f.Fuzz(func(t *testing.T, der []byte) {
		if _, err := Check(der, other, []fairdraw.Hash{root}); !errors.Is(err, ErrToken) {
			t.Errorf("%x: %v", der, err)
		}
		_, _ = complete(der, root, nil)
		_, _ = tokenOf(der)
	})
}
