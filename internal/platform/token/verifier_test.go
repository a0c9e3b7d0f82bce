package token_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"triprize/internal/platform/config"
	"triprize/internal/platform/token"
)

func TestWithoutASourceEveryTokenIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(settings *config.Tokens) { settings.Issuer, settings.Audience = "", "" })
	b.refused(t, "a token", b.hs256(t, nil), "not-in-use")
	b.refused(t, "none", sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, b.claims(nil)), "not-in-use")
	b.refused(t, "nothing", "", "not-in-use")
}

// Package jwt leaves out what it is given nothing to compare with.
func TestAVerifierIsNotMadeFromHalfOfItsSettings(t *testing.T) {
	t.Parallel()
	whole := config.Tokens{Issuer: issuer, Audience: audience, RoleClaim: "role", JWKSRefreshInterval: time.Hour, JWKSTimeout: time.Second}
	for name, change := range map[string]func(*config.Tokens){
		"both sources":   func(s *config.Tokens) { s.HS256Secret, s.JWKSURL = secret, "http://127.0.0.1:1/" },
		"a short secret": func(s *config.Tokens) { s.HS256Secret = secret[:31] },
		"no issuer":      func(s *config.Tokens) { s.HS256Secret, s.Issuer = secret, "" },
		"no audience":    func(s *config.Tokens) { s.HS256Secret, s.Audience = secret, "" },
		"no role claim":  func(s *config.Tokens) { s.HS256Secret, s.RoleClaim = secret, "" },
	} {
		settings := whole
		change(&settings)
		v, err := token.NewVerifier(settings, time.Now, slog.New(slog.DiscardHandler))
		if err == nil {
			v.Close()
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), secret[:31]) {
			t.Errorf("%s: %q repeats the secret", name, err)
		}
	}
}

func TestForgeriesOfATokenWithTheSecret(t *testing.T) {
	t.Parallel()
	b := newBench(t, withSecret)
	good := b.hs256(t, nil)
	parts := strings.Split(good, ".")
	b.believed(t, "the token itself", good)
	unsigned := func(alg string) string { return segment(t, object{"typ": "JWT", "alg": alg}) + "." + parts[1] + "." }
	signed := func(method jwt.SigningMethod, key any, header object) string {
		return sign(t, method, key, header, b.claims(nil))
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(good) - 1
	loose := good[:last] + string(alphabet[strings.IndexByte(alphabet, good[last])+1]) // the same bytes, spelt otherwise

	cases := map[string]struct{ raw, reason string }{
		"nothing":                 {"", "malformed"},
		"no token":                {"tp_000000000000_00", "malformed"},
		"alg none":                {unsigned("none"), "signature"},
		"no alg":                  {segment(t, object{"typ": "JWT"}) + "." + parts[1] + ".", "unverifiable"},
		"HS384":                   {signed(jwt.SigningMethodHS384, []byte(secret), nil), "signature"},
		"RS256":                   {signed(jwt.SigningMethodRS256, rsaKey(), nil), "signature"},
		"another secret":          {signed(jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), nil), "signature"},
		"no secret":               {signed(jwt.SigningMethodHS256, []byte{}, nil), "signature"},
		"other claims":            {parts[0] + "." + segment(t, b.claims(object{"sub": "u-2"})) + "." + parts[2], "signature"},
		"no signature":            {parts[0] + "." + parts[1] + ".", "signature"},
		"a signature spelt else":  {loose, "malformed"},
		"claims that are no JSON": {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte("no object")) + "." + parts[2], "malformed"},
		"an unknown extension":    {signed(jwt.SigningMethodHS256, []byte(secret), object{"crit": []string{"b64"}, "b64": false}), "extension"},
		"too long":                {b.hs256(t, object{"padding": strings.Repeat("x", 8<<10)}), "too-long"},
	}
	for _, name := range sorted(cases) {
		b.refused(t, name, cases[name].raw, cases[name].reason)
	}
}

func TestForgeriesOfATokenWithAPublishedKey(t *testing.T) {
	t.Parallel()
	issuer := newPublisher(t,
		jwk(t, "rsa", rsaKey(), nil), jwk(t, "rs256", rsaKey(), object{"alg": "RS256"}), jwk(t, "p256", p256(), nil), jwk(t, "ed", ed(), object{"alg": nil}))
	attacker := newPublisher(t, jwk(t, "rsa", otherRSA(), nil))
	b := newBench(t, issuer.settings)
	public, err := x509.MarshalPKIXPublicKey(rsaKey().Public())
	if err != nil {
		t.Fatal(err)
	}
	inPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	signed := func(method jwt.SigningMethod, key any, header object) string {
		return sign(t, method, key, header, b.claims(nil))
	}
	b.believed(t, "a good token", b.byKey(t, jwt.SigningMethodRS256, "rsa", rsaKey()))

	cases := map[string]struct{ raw, reason string }{
		"HS256 with the public key":     {signed(jwt.SigningMethodHS256, inPEM, object{"kid": "rsa"}), "signature"},
		"HS256 with the public DER":     {signed(jwt.SigningMethodHS256, public, object{"kid": "rsa"}), "signature"},
		"alg none":                      {signed(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, object{"kid": "rsa"}), "signature"},
		"RS512":                         {b.byKey(t, jwt.SigningMethodRS512, "rsa", rsaKey()), "signature"},
		"ES384":                         {b.byKey(t, jwt.SigningMethodES384, "p256", p384()), "signature"},
		"PS256 with a key for RS256":    {b.byKey(t, jwt.SigningMethodPS256, "rs256", rsaKey()), "unverifiable"},
		"RS256 with an EC key":          {b.byKey(t, jwt.SigningMethodRS256, "p256", rsaKey()), "unfit-key"},
		"ES256 with an RSA key":         {b.byKey(t, jwt.SigningMethodES256, "rsa", p256()), "unfit-key"},
		"EdDSA with an EC key":          {b.byKey(t, jwt.SigningMethodEdDSA, "p256", ed()), "unfit-key"},
		"another curve":                 {sign(t, jwt.SigningMethodES384, p384(), object{"kid": "p256", "alg": "ES256"}, b.claims(nil)), "signature"},
		"another RSA key":               {b.byKey(t, jwt.SigningMethodRS256, "rsa", otherRSA()), "signature"},
		"the key's neighbour":           {b.byKey(t, jwt.SigningMethodES256, "ed", p256()), "unfit-key"},
		"no kid":                        {signed(jwt.SigningMethodRS256, rsaKey(), nil), "unknown-key"},
		"an empty kid":                  {b.byKey(t, jwt.SigningMethodRS256, "", rsaKey()), "unknown-key"},
		"a number for a kid":            {signed(jwt.SigningMethodRS256, rsaKey(), object{"kid": 1}), "unknown-key"},
		"a kid in other case":           {b.byKey(t, jwt.SigningMethodRS256, "RSA", rsaKey()), "unknown-key"},
		"a URL for a kid":               {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": attacker.URL}), "unknown-key"},
		"its own key in jwk":            {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": "rsa", "jwk": jwk(t, "rsa", otherRSA(), nil)}), "signature"},
		"its own key in jwk, named new": {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": "new", "jwk": jwk(t, "new", otherRSA(), nil)}), "unknown-key"},
		"its own keys in jku":           {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": "rsa", "jku": attacker.URL}), "signature"},
		"its own certificate in x5u":    {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": "rsa", "x5u": attacker.URL}), "signature"},
		"an unknown extension":          {signed(jwt.SigningMethodRS256, rsaKey(), object{"kid": "rsa", "crit": []string{"exp"}}), "extension"},
		"another issuer":                {sign(t, jwt.SigningMethodRS256, rsaKey(), object{"kid": "rsa"}, b.claims(object{"iss": "another"})), "iss"},
		"expired":                       {sign(t, jwt.SigningMethodRS256, rsaKey(), object{"kid": "rsa"}, b.claims(object{"exp": 1})), "expired"},
		"expired, by another key":       {sign(t, jwt.SigningMethodRS256, otherRSA(), object{"kid": "rsa"}, b.claims(object{"exp": 1})), "signature"},
	}
	for _, name := range sorted(cases) {
		b.refused(t, name, cases[name].raw, cases[name].reason)
	}
	if n := attacker.asked.Load(); n != 0 {
		t.Errorf("the attacker's server was asked %d times", n)
	}
	if n := issuer.asked.Load(); n != 1 {
		t.Errorf("the issuer's server was asked %d times", n)
	}
	b.believed(t, "a good token afterwards", b.byKey(t, jwt.SigningMethodRS256, "rsa", rsaKey()))
}
