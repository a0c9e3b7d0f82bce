package timestamp

import (
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
	Authority fairdraw.Hash // SHA-256 of the authority's certificate (DER)
	DER       []byte        // with every certificate of the chain
	GenTime   time.Time     // a part of a microsecond counts as a whole one
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

// Check checks a token over a digest against pinned authorities, each the SHA-256 of a
// certificate (DER). Every error is an ErrToken and says what is wrong. docs/draw.md, section
// 8, has the rules.
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
	if err := signer.isForTimestamps(); err != nil {
		return Token{}, err
	}
	authority, err := authorityOf(signer, signed.certificates, info.genTime, roots)
	if err != nil {
		return Token{}, err
	}
	return Token{Authority: authority, DER: der, GenTime: info.genTime, Accuracy: info.accuracy, nonce: info.nonce}, nil
}
