package timestamp

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"

	"triprize/internal/domain/fairdraw"
)

// MaxToken bounds the length of a token, in bytes.
const MaxToken = 64 << 10

// Token is a token that was checked.
type Token struct {
	Authority fairdraw.Hash // SHA-256 of the authority's root certificate (DER)
	DER       []byte        // with every certificate of the chain
	GenTime   time.Time
	Accuracy  time.Duration // 0 if the token does not say

	nonce *big.Int // nil: none
}

// Before tells whether the digest certainly existed before t: genTime + accuracy < t.
func (t Token) Before(moment time.Time) bool { return t.GenTime.Add(t.Accuracy).Before(moment) }

// ErrToken means that a token does not show what it must.
var ErrToken = errors.New("timestamp: the token does not hold")

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrToken, fmt.Errorf(format, args...))
}

// Check checks a token over a digest against pinned roots, each the SHA-256 of a root
// certificate. Every error is an ErrToken and says what is wrong.
func Check(der []byte, digest fairdraw.Hash, roots []fairdraw.Hash) (Token, error) {
	if len(der) > MaxToken {
		return Token{}, refused("it has more than %d bytes", MaxToken)
	}
	signed, err := parse(der)
	if err != nil {
		return Token{}, err
	}
	signer, err := signed.verify()
	if err != nil {
		return Token{}, err
	}
	info, err := readInfo(signed.content)
	if err != nil {
		return Token{}, err
	}
	if err := info.isAbout(digest); err != nil {
		return Token{}, err
	}
	accuracy, err := info.Accuracy.duration()
	if err != nil {
		return Token{}, err
	}
	if err := isForTimestamps(signer); err != nil {
		return Token{}, err
	}
	authority, err := authorityOf(signer, signed.certificates, info.GenTime, roots)
	if err != nil {
		return Token{}, err
	}
	return Token{Authority: authority, DER: der, GenTime: info.GenTime, Accuracy: accuracy, nonce: info.Nonce}, nil
}

// isForTimestamps demands what RFC 3161 demands of a signer: an extended key usage that is
// critical, and timeStamping alone.
func isForTimestamps(c *x509.Certificate) error {
	if len(c.UnknownExtKeyUsage) > 0 || len(c.ExtKeyUsage) != 1 || c.ExtKeyUsage[0] != x509.ExtKeyUsageTimeStamping {
		return refused("the signer's certificate is not for timestamps alone")
	}
	for _, e := range c.Extensions {
		if e.Id.Equal(oidExtKeyUsage) && e.Critical {
			return nil
		}
	}
	return refused("the signer's certificate does not say as critical that it is for timestamps")
}

// authorityOf returns which pinned root the signer's chain leads to. All certificates are
// the token's own, and valid at the time.
func authorityOf(signer *x509.Certificate, certificates []*x509.Certificate, at time.Time, roots []fairdraw.Hash) (fairdraw.Hash, error) {
	others := x509.NewCertPool()
	for _, c := range certificates {
		others.AddCert(c)
	}
	err := errors.New("none of the pinned root certificates is in the token")
	for _, root := range roots {
		for _, c := range certificates {
			if hashOf(c) != root {
				continue
			}
			pinned := x509.NewCertPool()
			pinned.AddCert(c)
			_, wrong := signer.Verify(x509.VerifyOptions{Roots: pinned, Intermediates: others, CurrentTime: at,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
			if wrong == nil {
				return root, nil
			}
			err = wrong
		}
	}
	return fairdraw.Hash{}, refused("its certificates: %w", err)
}
