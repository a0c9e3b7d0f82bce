package token

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

// Role decides what the bearer of a token may do.
type Role string

// The roles of tokens. API keys have other roles.
const (
	User   Role = "user"   // its own purchases
	Viewer Role = "viewer" // reads without personal data
)

// Claims are what a verified token says.
type Claims struct {
	Issuer    string
	Subject   string // 1 to 128 characters
	Role      Role
	ExpiresAt time.Time // without the leeway
}

// Client names the bearer as the scope of idempotency keys: the same name for every
// token of one issuer and subject, and another for any other. It has 47 characters,
// one of them a colon, which no client of an API key has.
func (c Claims) Client() string {
	digest := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(c.Issuer), c.Issuer, c.Subject))
	return "jwt:" + base64.RawURLEncoding.EncodeToString(digest[:])
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

// rules are the checks of claims that package jwt does not make.
type rules struct {
	roleClaim   string
	leeway      time.Duration
	maxLifetime time.Duration // 0: any
	now         func() time.Time
}

// payload is a map, not a struct, because the names of claims are
// case-sensitive, and those of a struct's fields would not be.
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

// checkSubject refuses what no user_id may be. It also refuses the replacement
// character, which stands for text that was not UTF-8: several subjects would
// become one.
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
	if role := Role(text); role == User || role == Viewer {
		return role, nil
	}
	return "", errRole
}

// checkDates refuses numbers that would overflow a time.
func (p *payload) checkDates() error {
	for _, name := range []string{"exp", "nbf", "iat"} {
		if date, ok := p.MapClaims[name].(float64); ok && (date < 0 || date > maxDate) {
			return errDate
		}
	}
	return nil
}

// checkLifetime measures from iat, or from now when a token has no iat.
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
