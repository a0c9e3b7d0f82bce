package timestamp

import (
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"

	"triprize/internal/domain/fairdraw"
)

// imprint is MessageImprint of RFC 3161.
type imprint struct {
	Algorithm pkix.AlgorithmIdentifier
	Digest    []byte
}

// timeStampReq is TimeStampReq of RFC 3161, without what we do not ask for.
type timeStampReq struct {
	Version int
	Imprint imprint
	Nonce   *big.Int
	CertReq bool
}

// timeStampResp is TimeStampResp of RFC 3161.
type timeStampResp struct {
	Status pkiStatusInfo
	Token  asn1.RawValue `asn1:"optional"`
}

type pkiStatusInfo struct {
	Status   int
	Text     []asn1.RawValue `asn1:"optional"`
	FailInfo asn1.BitString  `asn1:"optional"`
}

// nonceBits is the length of a nonce: an answer that was made for another query does not
// have it.
const nonceBits = 64

// query returns the query for a digest in DER, and its nonce. It asks for the certificates.
func query(digest fairdraw.Hash) (der []byte, nonce *big.Int, err error) {
	nonce, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), nonceBits))
	if err != nil {
		return nil, nil, fmt.Errorf("timestamp: the nonce: %w", err)
	}
	algorithm := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}, Parameters: asn1.NullRawValue} // SHA-256
	der, err = asn1.Marshal(timeStampReq{Version: 1, Imprint: imprint{algorithm, digest[:]}, Nonce: nonce, CertReq: true})
	return der, nonce, err
}

// exactly reads a value that takes all bytes.
func exactly(der []byte, into any) error {
	rest, err := asn1.Unmarshal(der, into)
	if err == nil && len(rest) > 0 {
		err = asn1.SyntaxError{Msg: "trailing data"}
	}
	return err
}

// tokenOf returns the token in an answer.
func tokenOf(answer []byte) ([]byte, error) {
	var resp timeStampResp
	if err := exactly(answer, &resp); err != nil {
		return nil, fmt.Errorf("the answer is no timestamp response: %w", err)
	}
	const granted, withModifications = 0, 1
	if resp.Status.Status != granted && resp.Status.Status != withModifications {
		return nil, fmt.Errorf("the authority refuses: status %d, %s", resp.Status.Status, failure(resp.Status.FailInfo))
	}
	if len(resp.Token.FullBytes) == 0 {
		return nil, errors.New("the answer has no token")
	}
	return resp.Token.FullBytes, nil
}

// failure names the first bit that is set (RFC 3161, 2.4.2).
func failure(bits asn1.BitString) string {
	names := map[int]string{0: "bad algorithm", 2: "bad request", 5: "bad data format", 14: "its time is not available",
		15: "unaccepted policy", 16: "unaccepted extension", 17: "additional information is not available", 25: "system failure"}
	for bit := range bits.BitLength {
		if bits.At(bit) == 1 {
			if name, ok := names[bit]; ok {
				return name
			}
			return fmt.Sprintf("failure %d", bit)
		}
	}
	return "it does not say why"
}
