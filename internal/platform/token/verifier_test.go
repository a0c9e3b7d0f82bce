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
	b.refused(t, "a token", b.hs256(t, nil), notInUse)
	b.refused(t, "none", sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, b.claims(nil)), notInUse)
	b.refused(t, "nothing", "", notInUse)
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
		"nothing":                 {"", malformed},
		"no token":                {"tp_000000000000_00", malformed},
		"alg none":                {unsigned("none"), badSignature},
		"alg None":                {unsigned("None"), unverifiable},
		"no alg":                  {segment(t, object{"typ": "JWT"}) + "." + parts[1] + ".", unverifiable},
		"an empty alg":            {unsigned(""), unverifiable},
		"a list of algs":          {segment(t, object{"alg": []string{"HS256"}}) + "." + parts[1] + "." + parts[2], unverifiable},
		"HS384":                   {signed(jwt.SigningMethodHS384, []byte(secret), nil), badSignature},
		"RS256":                   {signed(jwt.SigningMethodRS256, rsaKey(), nil), badSignature},
		"another secret":          {signed(jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), nil), badSignature},
		"no secret":               {signed(jwt.SigningMethodHS256, []byte{}, nil), badSignature},
		"other claims":            {parts[0] + "." + segment(t, b.claims(object{"sub": "u-2"})) + "." + parts[2], badSignature},
		"no signature":            {parts[0] + "." + parts[1] + ".", badSignature},
		"a signature spelt else":  {loose, malformed},
		"padding":                 {good + "=", malformed},
		"two segments":            {parts[0] + "." + parts[1], malformed},
		"four segments":           {good + "." + parts[2], malformed},
		"claims that are no JSON": {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte("no object")) + "." + parts[2], malformed},
		"claims that are a list":  {parts[0] + "." + segment(t, []int{1}) + "." + parts[2], malformed},
		"a header that is null":   {segment(t, nil) + "." + parts[1] + "." + parts[2], unverifiable},
		"an unknown extension":    {signed(jwt.SigningMethodHS256, []byte(secret), object{"crit": []string{"b64"}, "b64": false}), critical},
		"too long":                {b.hs256(t, object{"padding": strings.Repeat("x", 8<<10)}), tooLong},
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
		"HS256 with the public key":     {signed(jwt.SigningMethodHS256, inPEM, object{"kid": "rsa"}), badSignature},
		"HS256 with the public DER":     {signed(jwt.SigningMethodHS256, public, object{"kid": "rsa"}), badSignature},
		"alg none":                      {signed(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, object{"kid": "rsa"}), badSignature},
		"RS512":                         {b.byKey(t, jwt.SigningMethodRS512, "rsa", rsaKey()), badSignature},
		"ES384":                         {b.byKey(t, jwt.SigningMethodES384, "p256", p384()), badSignature},
		"PS256 with a key for RS256":    {b.byKey(t, jwt.SigningMethodPS256, "rs256", rsaKey()), unverifiable},
		"RS256 with an EC key":          {b.byKey(t, jwt.SigningMethodRS256, "p256", rsaKey()), unfitKey},
		"ES256 with an RSA key":         {b.byKey(t, jwt.SigningMethodES256, "rsa", p256()), unfitKey},
		"EdDSA with an EC key":          {b.byKey(t, jwt.SigningMethodEdDSA, "p256", ed()), unfitKey},
		"another curve":                 {sign(t, jwt.SigningMethodES384, p384(), object{"kid": "p256", "alg": "ES256"}, b.claims(nil)), badSignature},
		"another RSA key":               {b.byKey(t, jwt.SigningMethodRS256, "rsa", otherRSA()), badSignature},
		"the key's neighbour":           {b.byKey(t, jwt.SigningMethodES256, "ed", p256()), unfitKey},
		"no kid":                        {signed(jwt.SigningMethodRS256, rsaKey(), nil), unknownKey},
		"an empty kid":                  {b.byKey(t, jwt.SigningMethodRS256, "", rsaKey()), unknownKey},
		"a number for a kid":            {signed(jwt.SigningMethodRS256, rsaKey(), object{"kid": 1}), unknownKey},
		"a kid in other case":           {b.byKey(t, jwt.SigningMethodRS256, "RSA", rsaKey()), unknownKey},
		"a URL for a kid":               {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": attacker.URL}), unknownKey},
		"its own key in jwk":            {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": "rsa", "jwk": jwk(t, "rsa", otherRSA(), nil)}), badSignature},
		"its own key in jwk, named new": {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": "new", "jwk": jwk(t, "new", otherRSA(), nil)}), unknownKey},
		"its own keys in jku":           {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": "rsa", "jku": attacker.URL}), badSignature},
		"its own certificate in x5u":    {signed(jwt.SigningMethodRS256, otherRSA(), object{"kid": "rsa", "x5u": attacker.URL}), badSignature},
		"an unknown extension":          {signed(jwt.SigningMethodRS256, rsaKey(), object{"kid": "rsa", "crit": []string{"exp"}}), critical},
		"another issuer":                {sign(t, jwt.SigningMethodRS256, rsaKey(), object{"kid": "rsa"}, b.claims(object{"iss": "another"})), badIssuer},
		"expired":                       {sign(t, jwt.SigningMethodRS256, rsaKey(), object{"kid": "rsa"}, b.claims(object{"exp": 1})), expired},
		"expired, by another key":       {sign(t, jwt.SigningMethodRS256, otherRSA(), object{"kid": "rsa"}, b.claims(object{"exp": 1})), badSignature},
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
