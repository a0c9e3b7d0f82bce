// Package token verifies the JSON Web Tokens of users and the public ([Verifier]).
//
// A token is signed with HS256 and the shared secret, or with RS256, PS256, ES256 or EdDSA
// and a key of the issuer; a setting decides which, never the token. The key's type, curve
// and declared alg, use and key_ops must fit. Issuer and audience must equal the settings.
// exp is required; exp, nbf and iat are checked with the leeway; sub has 1 to 128
// characters; the role is user or public. Keys in a token, or behind its links, are
// ignored.
//
// The issuer's keys are fetched in the background: at start, at intervals, and for an unknown kid at most
// once in a few seconds. After a failed fetch the last keys stay valid. Before the first successful fetch
// Verify returns unavailable.
//
// All rejections have the same text, except for an expired token. No error and no log line has any part of
// a token.
package token

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
)

const (
	maxLength = 8 << 10 // bytes of a token
	minSecret = 32      // bytes; RFC 7518 requires the size of the hash
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

// NewVerifier returns a Verifier. It does not wait for the issuer's server, which may be down.
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

// Close stops the fetches of keys.
func (v *Verifier) Close() {
	if v.keys != nil {
		v.keys.close()
	}
}

// Verify returns the claims of a token, or an unauthenticated Error with a [Refusal]. The Error is unavailable before
// the first successful fetch of keys. For an unknown kid Verify waits for a fetch or the end of ctx.
func (v *Verifier) Verify(ctx context.Context, raw string) (Claims, error) {
	if v.parser == nil {
		return Claims{}, refusal(errNoSource)
	}
	if len(raw) > maxLength {
		return Claims{}, refusal(errTooLong)
	}
	p := payload{rules: v.rules}
	if _, err := v.parser.ParseWithClaims(raw, &p, func(t *jwt.Token) (any, error) { return v.key(ctx, t) }); err != nil {
		return Claims{}, refusal(err)
	}
	claims, err := p.claims()
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

// Refusal is why a token is rejected. It contains no part of the token.
type Refusal struct {
	Reason string // one of [Reasons], for logs and metrics
	Claim  string // the fault of a claim, for the sender; empty unless the signature is valid
}

func (r *Refusal) Error() string { return "token refused: " + r.Reason }

// reasons maps errors, whose texts may contain parts of a token, to refusals. The first match is used. Expiry comes
// last, because it is reported only if nothing else is wrong.
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
	{errRole, Refusal{"role", "the role must be user or public, or left out"}},
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
		return fault.Wrap(fault.Unavailable, errNoKeys, "tokens cannot be verified at the moment")
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
	return fault.Wrap(fault.Unauthenticated, &why, "the token is not valid")
}

// Role decides what the bearer of a token may do.
type Role string

// The roles of tokens. API keys have other roles.
const (
	User   Role = "user"   // its own purchases
	Public Role = "public" // reads without personal data
)

// Claims are the claims of a verified token.
type Claims struct {
	Issuer    string
	Subject   string // 1 to 128 characters
	Role      Role
	ExpiresAt time.Time // without the leeway
}

// ClientPrefix begins the names of clients that are bearers of tokens.
const ClientPrefix = "jwt:"

// Client returns the scope of the bearer's idempotency keys, which is unique for issuer and subject. It has 47
// characters. The colon distinguishes it from clients of API keys.
func (c Claims) Client() string {
	digest := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(c.Issuer), c.Issuer, c.Subject))
	return ClientPrefix + base64.RawURLEncoding.EncodeToString(digest[:])
}

const (
	maxSubject = 128          // characters, like user_id
	maxDate    = 253402300799 // the last second of the year 9999
)

var (
	errSubject  = errors.New("token has an unsuitable subject")
	errRole     = errors.New("token has an unknown role")
	errDate     = errors.New("token has a date that is none")
	errLifetime = errors.New("token is valid for too long")
)

// rules are checks of claims that package jwt lacks.
type rules struct {
	roleClaim   string
	leeway      time.Duration
	maxLifetime time.Duration // 0: any
	now         func() time.Time
}

// payload is a map, because the names of claims are case-sensitive, unlike struct fields in JSON.
type payload struct {
	jwt.MapClaims
	rules rules
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *payload) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &p.MapClaims) }

// Validate implements jwt.ClaimsValidator: the parser calls it together with its own checks.
func (p *payload) Validate() error {
	_, wrongRole := p.role()
	return errors.Join(p.checkSubject(), wrongRole, p.checkDates(), p.checkLifetime())
}

// checkSubject rejects invalid user ids. It also rejects the replacement character, which replaces invalid UTF-8, so
// that several subjects would become one.
func (p *payload) checkSubject() error {
	subject, _ := p.MapClaims["sub"].(string)
	if n := utf8.RuneCountInString(subject); n < 1 || n > maxSubject {
		return errSubject
	}
	if strings.ContainsFunc(subject, func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }) {
		return errSubject
	}
	return nil
}

func (p *payload) role() (Role, error) {
	claim, ok := p.MapClaims[p.rules.roleClaim]
	if !ok {
		return User, nil
	}
	text, _ := claim.(string)
	if role := Role(text); role == User || role == Public {
		return role, nil
	}
	return "", errRole
}

// checkDates rejects numbers that would overflow a time.
func (p *payload) checkDates() error {
	for _, name := range []string{"exp", "nbf", "iat"} {
		if date, ok := p.MapClaims[name].(float64); ok && (date < 0 || date > maxDate) {
			return errDate
		}
	}
	return nil
}

// checkLifetime bounds the time from iat, or from now without iat, to exp.
func (p *payload) checkLifetime() error {
	if p.rules.maxLifetime == 0 {
		return nil
	}
	begin := p.rules.now()
	if issued, err := p.GetIssuedAt(); err == nil && issued != nil {
		begin = issued.Time
	}
	expires, err := p.GetExpirationTime()
	if err == nil && expires != nil && expires.Sub(begin) > p.rules.maxLifetime+p.rules.leeway {
		return errLifetime
	}
	return nil
}

// claims returns the claims of a valid payload.
func (p *payload) claims() (Claims, error) {
	issuer, wrongIssuer := p.GetIssuer()
	subject, wrongSubject := p.GetSubject()
	expires, wrongDate := p.GetExpirationTime()
	role, wrongRole := p.role()
	if err := errors.Join(wrongIssuer, wrongSubject, wrongDate, wrongRole); err != nil {
		return Claims{}, err
	}
	return Claims{Issuer: issuer, Subject: subject, Role: role, ExpiresAt: expires.UTC()}, nil
}

// Sign signs a token with the shared secret, for tests by hand. It rejects what a Verifier would.
func Sign(settings config.Tokens, subject string, role Role, lifetime time.Duration, now time.Time) (string, error) {
	if settings.HS256Secret == "" {
		return "", errors.New("tokens.hs256_secret is not set: only an issuer that shares its secret can be played")
	}
	claims := jwt.MapClaims{
		"iss": settings.Issuer, "aud": settings.Audience, "sub": subject, settings.RoleClaim: string(role),
		"iat": float64(now.Unix()), "exp": float64(now.Add(lifetime).Unix()), // as JSON has numbers
	}
	p := payload{MapClaims: claims, rules: rules{roleClaim: settings.RoleClaim, maxLifetime: settings.MaxLifetime, now: func() time.Time { return now }}}
	if err := p.Validate(); err != nil {
		return "", err
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(settings.HS256Secret))
}
