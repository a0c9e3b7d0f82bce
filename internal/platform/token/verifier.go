package token

import (
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
	logger *slog.Logger
}

// NewVerifier returns a Verifier. It does not wait for the issuer's server, which
// may be away. The reason of each refusal is logged at level debug.
func NewVerifier(settings config.Tokens, now func() time.Time, logger *slog.Logger) (*Verifier, error) {
	v := &Verifier{logger: logger, rules: rules{roleClaim: settings.RoleClaim, leeway: settings.Leeway, maxLifetime: settings.MaxLifetime, now: now}}
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
		jwt.WithLeeway(settings.Leeway), jwt.WithTimeFunc(now))
	return v, nil
}

// Close ends the fetching of keys and waits for its end.
func (v *Verifier) Close() {
	if v.keys != nil {
		v.keys.close()
	}
}

// Verify returns the claims of a token, or an unauthenticated Error. The Error is
// unavailable when no keys have been fetched yet. For an unknown kid it waits until
// ctx ends or the keys have been fetched, whichever is first.
func (v *Verifier) Verify(ctx context.Context, raw string) (Claims, error) {
	if v.parser == nil {
		return Claims{}, v.refusal(ctx, errNoSource)
	}
	if len(raw) > maxLength {
		return Claims{}, v.refusal(ctx, errTooLong)
	}
	said := payload{rules: v.rules}
	if _, err := v.parser.ParseWithClaims(raw, &said, func(t *jwt.Token) (any, error) { return v.key(ctx, t) }); err != nil {
		return Claims{}, v.refusal(ctx, err)
	}
	claims, err := said.claims()
	if err != nil {
		return Claims{}, v.refusal(ctx, err)
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

// reasons are the only texts that are logged about a refused token: the errors of
// the parser can repeat parts of it. The first that matches is used. The age comes
// last, because it is the reason only when nothing else is wrong.
var reasons = []error{
	errNoSource, errTooLong, errCritical, errKeyUnknown, errKeyUnfit,
	jwt.ErrTokenMalformed, jwt.ErrTokenUnverifiable, jwt.ErrTokenSignatureInvalid, jwt.ErrTokenRequiredClaimMissing, jwt.ErrInvalidType,
	jwt.ErrTokenInvalidIssuer, jwt.ErrTokenInvalidAudience, jwt.ErrTokenUsedBeforeIssued, jwt.ErrTokenNotValidYet,
	errSubject, errRole, errDate, errLifetime, jwt.ErrTokenExpired,
}

// refusal returns the error for the client.
func (v *Verifier) refusal(ctx context.Context, err error) error {
	if errors.Is(err, errNoKeys) {
		return fault.Wrap(fault.Unavailable, errNoKeys, "tokens cannot be checked at the moment")
	}
	reason := errors.New("another")
	for _, known := range reasons {
		if errors.Is(err, known) {
			reason = known
			break
		}
	}
	v.logger.DebugContext(ctx, "token refused", "reason", reason.Error())
	if errors.Is(reason, jwt.ErrTokenExpired) {
		return fault.New(fault.Unauthenticated, "the token has expired")
	}
	return fault.New(fault.Unauthenticated, "the token is not valid here")
}
