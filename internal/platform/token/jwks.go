package token

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/MicahParks/jwkset"
)

// asymmetric are the algorithms of keys that an issuer publishes. HS256 is not
// among them: its "secret" would be a public key.
var asymmetric = []string{"RS256", "PS256", "ES256", "EdDSA"}

const (
	maxBody    = 1 << 20 // bytes of a key set
	maxHeaders = 64 << 10
	minRSA     = 2048 // bits; RFC 7518
)

// newClient returns a client for a request every few minutes. It follows no
// redirects: only the server in the setting is trusted.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// download returns the usable keys of the set at url (RFC 7517). A set may be
// empty: that withdraws all keys. An answer that is not a key set is an error.
func download(ctx context.Context, client *http.Client, url string) ([]jwkset.JWK, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("token.download: %w", err)
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("token.download: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("token.download: the answer has the status %d", answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("token.download: %w", err)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("token.download: the answer has more than %d bytes", maxBody)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("token.download: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New("token.download: the answer has no member keys")
	}
	keys := make([]jwkset.JWK, 0, len(set.Keys))
	for _, text := range set.Keys {
		if key, ok := usable(text); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// usable returns a key if tokens can be verified with it. Others are skipped,
// broken ones too: a set must not fail because of a key that is not used here.
func usable(text json.RawMessage) (jwkset.JWK, bool) {
	var m jwkset.JWKMarshal
	if err := json.Unmarshal(text, &m); err != nil || m.KID == "" || m.D != "" { // d is the private half: anybody could sign
		return jwkset.JWK{}, false
	}
	if m.USE != "" && m.USE != jwkset.UseSig || len(m.KEYOPS) > 0 && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify) {
		return jwkset.JWK{}, false
	}
	m.X5U, m.X5C, m.X5T, m.X5TS256 = "", nil, "", "" // certificates add nothing: the issuer's server is trusted
	key, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return jwkset.JWK{}, false
	}
	suits := func(alg string) bool { return (m.ALG == "" || string(m.ALG) == alg) && fits(key.Key(), alg) }
	return key, slices.ContainsFunc(asymmetric, suits)
}

// fits tells whether a key can verify signatures by alg.
func fits(key any, alg string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return (alg == "RS256" || alg == "PS256") && key.N.BitLen() >= minRSA
	case *ecdsa.PublicKey:
		return alg == "ES256" && key.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return alg == "EdDSA"
	default:
		return false
	}
}
