package fleet

import (
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The login service whose tokens a system trusts.
const (
	Issuer      = "https://login.example"
	Audience    = "triprize"
	TokenSecret = "a secret of the login service, not of ours"
)

// Trusting systems accept the tokens of that login service.
var Trusting = Options{Env: []string{"TRIPRIZE_TOKENS_ISSUER=" + Issuer, "TRIPRIZE_TOKENS_AUDIENCE=" + Audience, "TRIPRIZE_TOKENS_HS256_SECRET=" + TokenSecret}}

// TokenFor signs a token of a user; role may be empty.
func TokenFor(t *testing.T, user, role string, change ...func(jwt.MapClaims)) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": Issuer, "aud": Audience, "sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	if role != "" {
		claims["role"] = role
	}
	for _, c := range change {
		c(claims)
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(TokenSecret))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}
