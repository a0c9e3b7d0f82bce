package token

import (
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"triprize/internal/platform/config"
)

// Sign makes a token as an issuer does that shares its secret, for people who try something out.
// It refuses what a Verifier with these settings would.
func Sign(settings config.Tokens, subject string, role Role, lifetime time.Duration, now time.Time) (string, error) {
	if settings.HS256Secret == "" {
		return "", errors.New("tokens.hs256_secret is not set: only an issuer that shares its secret can be played")
	}
	claims := jwt.MapClaims{
		"iss": settings.Issuer, "aud": settings.Audience, "sub": subject, settings.RoleClaim: string(role),
		"iat": float64(now.Unix()), "exp": float64(now.Add(lifetime).Unix()), // as JSON has numbers
	}
	said := payload{MapClaims: claims, rules: rules{roleClaim: settings.RoleClaim, maxLifetime: settings.MaxLifetime, now: func() time.Time { return now }}}
	if err := said.Validate(); err != nil {
		return "", err
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(settings.HS256Secret))
}
