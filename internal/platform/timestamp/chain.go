package timestamp

import (
	"bytes"
	"slices"
	"time"

	"triprize/internal/domain/fairdraw"
)

// maxCertificates bounds the certificates of a token.
const maxCertificates = 8

// authorityOf returns the pinned certificate to which the signer's chain leads. No two certificates
// have one subject, so there is one chain. It ends at the first that is pinned.
func authorityOf(signer *certificate, certificates []*certificate, at time.Time, pinned []fairdraw.Hash) (fairdraw.Hash, error) {
	if len(certificates) > maxCertificates {
		return fairdraw.Hash{}, refused("its certificates: there are %d, more than %d", len(certificates), maxCertificates)
	}
	subjects := make(map[string]*certificate, len(certificates))
	for _, c := range certificates {
		if subjects[string(c.subject)] != nil {
			return fairdraw.Hash{}, refused("its certificates: two have one subject")
		}
		subjects[string(c.subject)] = c
	}
	c := signer
	for between := range int64(len(certificates)) {
		if err := c.counts(at); err != nil {
			return fairdraw.Hash{}, err
		}
		if hash := c.hash(); slices.Contains(pinned, hash) {
			return hash, nil
		}
		issuer := subjects[string(c.issuer)]
		if issuer == nil {
			break
		}
		if err := issuer.hasSigned(c, between); err != nil {
			return fairdraw.Hash{}, err
		}
		c = issuer
	}
	return fairdraw.Hash{}, refused("its certificates: the chain leads to none of the authorities")
}

// chainTo returns certificates from the signer's to the one of a hash, each signed by the next; nil if
// there are none. An authority may send several of one subject, such as cross-signed ones.
func chainTo(root fairdraw.Hash, signer *certificate, among []*certificate) []*certificate {
	seen := []*certificate{signer}
	var follow func(c *certificate) []*certificate
	follow = func(c *certificate) []*certificate {
		if c.hash() == root {
			return []*certificate{c}
		}
		for _, issuer := range among {
			if slices.Contains(seen, issuer) || !bytes.Equal(issuer.subject, c.issuer) || checkSignature(issuer.key, c.algorithm, 0, c.signed, c.signature) != nil {
				continue
			}
			seen = append(seen, issuer)
			if above := follow(issuer); above != nil {
				return append([]*certificate{c}, above...)
			}
		}
		return nil
	}
	return follow(signer)
}
