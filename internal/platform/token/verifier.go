package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
)

const (
	maxLength = 8 << 10 // bytes of a token
	minSecret = 32      // bytes; RFC 7518 requires as many as the hash has
)

var (
	errTooLong  = errors.New("token is too long")
	errNoSource = errors.New("tokens are not in use")
	errCritical = errors.New("token has an extension that must be understood")
)

// Verifier checks tokens.
type Verifier struct {
	parser *jwt.Parser // nil: tokens are not in use
	rules  rules
	secret []byte  // for HS256; nil: the keys of the issuer
	keys   *keySet // nil: the secret
}

// NewVerifier returns a Verifier. It does not wait for the issuer's server, which
// may be away.
func NewVerifier(settings config.Tokens, now func() time.Time, logger *slog.Logger) (*Verifier, error) {
	leeway := cmp.Or(settings.Leeway, 30*time.Second) // how much the issuer's clock may differ from ours
	v := &Verifier{rules: rules{roleClaim: settings.RoleClaim, leeway: leeway, maxLifetime: settings.MaxLifetime, now: now}}
	if settings.HS256Secret == "" && settings.JWKSURL == "" {
		return v, nil
	}
	if settings.Issuer == "" || settings.Audience == "" || settings.RoleClaim == "" {
		return nil, errors.New("token.NewVerifier: issuer, audience and role_claim are required") // empty, they would not be checked
	}
	var methods []string
	switch {
	case settings.JWKSURL == "" && len(settings.HS256Secret) >= minSecret:
		v.secret, methods = []byte(settings.HS256Secret), []string{jwt.SigningMethodHS256.Alg()}
	case settings.HS256Secret == "":
		keys, err := newKeySet(settings, now, logger)
		if err != nil {
			return nil, fmt.Errorf("token.NewVerifier: %w", err)
		}
		v.keys, methods = keys, asymmetric
	default:
		return nil, fmt.Errorf("token.NewVerifier: either a secret of at least %d bytes or a URL", minSecret)
	}
	v.parser = jwt.NewParser(jwt.WithValidMethods(methods), jwt.WithStrictDecoding(),
		jwt.WithIssuer(settings.Issuer), jwt.WithAudience(settings.Audience), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithLeeway(leeway), jwt.WithTimeFunc(now))
	return v, nil
}

// Close ends the fetching of keys and waits for its end.
func (v *Verifier) Close() {
	if v.keys != nil {
		v.keys.close()
	}
}

// Verify returns the claims of a token, or an unauthenticated Error with a [Refusal]. The Error is
// unavailable when no keys have been fetched yet. For an unknown kid it waits until
// ctx ends or the keys have been fetched, whichever is first.
func (v *Verifier) Verify(ctx context.Context, raw string) (Claims, error) {
	if v.parser == nil {
		return Claims{}, refusal(errNoSource)
	}
	if len(raw) > maxLength {
		return Claims{}, refusal(errTooLong)
	}
	said := payload{rules: v.rules}
	if _, err := v.parser.ParseWithClaims(raw, &said, func(t *jwt.Token) (any, error) { return v.key(ctx, t) }); err != nil {
		return Claims{}, refusal(err)
	}
	claims, err := said.claims()
	if err != nil {
		return Claims{}, refusal(err)
	}
	return claims, nil
}

// key returns the key a token must be signed with.
func (v *Verifier) key(ctx context.Context, t *jwt.Token) (any, error) {
	if _, ok := t.Header["crit"]; ok {
		return nil, errCritical
	}
	if v.secret != nil {
		return v.secret, nil
	}
	return v.keys.keyOf(ctx, t)
}

// Refusal is why a token is refused. It has nothing of the token.
type Refusal struct {
	Reason string // one of [Reasons], for logs and metrics
	Claim  string // what is wrong with a claim, for the sender; empty while the signature is not known to be right
}

func (r *Refusal) Error() string { return "token refused: " + r.Reason }

// reasons are the refusals by the errors of the parser, which can repeat parts of a token. The first
// that matches is used. The age comes last, because it is the reason only when nothing else is wrong.
var reasons = []struct {
	err error
	Refusal
}{
	{errNoSource, Refusal{Reason: "not-in-use"}}, {errTooLong, Refusal{Reason: "too-long"}}, {errCritical, Refusal{Reason: "extension"}},
	{errKeyUnknown, Refusal{Reason: "unknown-key"}}, {errKeyUnfit, Refusal{Reason: "unfit-key"}},
	{jwt.ErrTokenMalformed, Refusal{Reason: "malformed"}}, {jwt.ErrTokenUnverifiable, Refusal{Reason: "unverifiable"}}, {jwt.ErrTokenSignatureInvalid, Refusal{Reason: "signature"}},
	{jwt.ErrTokenRequiredClaimMissing, Refusal{"missing", "iss, aud or exp is missing"}},
	{jwt.ErrInvalidType, Refusal{"type", "iss, aud, exp, nbf or iat has the wrong type"}},
	{jwt.ErrTokenInvalidIssuer, Refusal{"iss", "iss is not the issuer that is trusted here"}},
	{jwt.ErrTokenInvalidAudience, Refusal{"aud", "aud does not name this installation"}},
	{jwt.ErrTokenUsedBeforeIssued, Refusal{"iat", "iat is in the future"}},
	{jwt.ErrTokenNotValidYet, Refusal{"nbf", "nbf is in the future"}},
	{errSubject, Refusal{"sub", "sub must have 1 to 128 characters, no control characters"}},
	{errRole, Refusal{"role", "the role must be user or viewer, or left out"}},
	{errDate, Refusal{"date", "exp, nbf or iat is no time"}},
	{errLifetime, Refusal{"lifetime", "exp is too long after iat: tokens must not be valid for so long here"}},
	{jwt.ErrTokenExpired, Refusal{"expired", "exp is over"}},
}

// Reasons are all reasons of refusals.
func Reasons() []string {
	all := []string{"other"}
	for _, r := range reasons {
		all = append(all, r.Reason)
	}
	return all
}

// refusal returns the error for the client.
func refusal(err error) error {
	if errors.Is(err, errNoKeys) {
		return fault.Wrap(fault.Unavailable, errNoKeys, "tokens cannot be checked at the moment")
	}
	why := Refusal{Reason: "other"}
	for _, known := range reasons {
		if errors.Is(err, known.err) {
			why = known.Refusal
			break
		}
	}
	if why.Reason == "expired" {
		return fault.Wrap(fault.Unauthenticated, &why, "the token has expired")
	}
	return fault.Wrap(fault.Unauthenticated, &why, "the token is not valid here")
}
