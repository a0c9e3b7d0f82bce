// Package oidc signs persons in at an OpenID provider. It uses the authorization code flow with PKCE, a nonce, and the issuer
// in the callback (RFC 9207) where the provider sends it. Tokens of the provider are checked and not stored.
//
// Nothing is fetched before somebody signs in. Then discovery and keys are, one fetch at a time, within [Timeout].
package oidc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"triprize/internal/platform/config"
)

const (
	// Timeout bounds a sign-in's requests to the provider, together.
	Timeout = 5 * time.Second
	// maxAnswer is how long an answer of the provider may be.
	maxAnswer = 256 << 10
	// discoveredFor is how long a discovery is used. Keys are fetched anew when a token names another.
	discoveredFor = time.Hour
	// leeway is how much the clocks may differ.
	leeway = time.Minute
)

// Refused means that the provider, or what came in its name, does not sign the person in. Its text is for that person and
// never has words of the provider's answer beside its error code.
type Refused struct {
	Code string // of the provider (RFC 6749, section 4.1.2.1), such as login_required; empty: it answered something else
	why  string
	err  error
}

func (r *Refused) Error() string { return r.why }

// Unwrap returns the cause, for the log.
func (r *Refused) Unwrap() error { return r.err }

// ErrAway means that the provider did not answer in time, or not as one.
var ErrAway = errors.New("the provider of accounts does not answer as it should")

// Attempt is what a sign-in has begun with; the browser holds it, sealed, until the callback.
type Attempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// Person is who has signed in.
type Person struct {
	Issuer, Subject string   // together they are the person
	Email           string   // for people; empty: unknown
	Groups          []string // the values of the claim of roles
	Claim           string   // what that claim had, for the page that refuses; empty: there is none
}

// Provider is an OpenID provider.
type Provider struct {
	settings config.OIDC
	now      func() time.Time
	client   *http.Client

	fetch chan struct{} // has room for the one that discovers, and guards known
	known *discovery    // nil: not yet
}

// discovery is what a provider says of itself.
type discovery struct {
	*oidc.Provider
	at    time.Time
	claim struct {
		EndSession string `json:"end_session_endpoint"` // where it has RP-initiated logout
		SendsIss   bool   `json:"authorization_response_iss_parameter_supported"`

		Methods []string `json:"token_endpoint_auth_methods_supported"` // none: client_secret_basic
	}
}

// New returns the provider of the settings. It fetches nothing.
func New(settings config.OIDC, now func() time.Time) *Provider {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = 8, 2
	return &Provider{settings: settings, now: now, fetch: make(chan struct{}, 1), client: &http.Client{
		Transport: bounded{transport}, Timeout: Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// bounded lets requests go to https, or to this machine, and cuts long answers off.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if !IsTrustworthy(r.URL) {
		return nil, fmt.Errorf("%s is neither https nor on this machine", r.URL.Redacted())
	}
	answer, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	return answer, nil
}

// IsTrustworthy reports whether nobody between can read or change what is sent to an address: it is https, or this machine.
func IsTrustworthy(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && ip.IsLoopback())
}

// discover returns what the provider says of itself, as it was fetched within the last hour.
func (p *Provider) discover(ctx context.Context) (*discovery, error) {
	select {
	case p.fetch <- struct{}{}:
		defer func() { <-p.fetch }()
	case <-ctx.Done():
		return nil, errors.Join(ErrAway, context.Cause(ctx))
	}
	if p.known != nil && p.now().Sub(p.known.at) < discoveredFor {
		return p.known, nil
	}
	fetched, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.settings.Issuer)
	if err != nil {
		return nil, errors.Join(ErrAway, err)
	}
	found := &discovery{Provider: fetched, at: p.now()}
	if err := fetched.Claims(&found.claim); err != nil {
		return nil, errors.Join(ErrAway, err)
	}
	for _, address := range []string{fetched.Endpoint().AuthURL, fetched.Endpoint().TokenURL, found.claim.EndSession} {
		if u, err := url.Parse(address); err != nil || address != "" && !IsTrustworthy(u) {
			return nil, errors.Join(ErrAway, fmt.Errorf("%q is neither https nor on this machine", address))
		}
	}
	p.known = found
	return found, nil
}

func (p *Provider) oauth(found *discovery, redirect string) *oauth2.Config {
	endpoint := found.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader // to try both would redeem a code twice
	if takesBasic := len(found.claim.Methods) == 0 || slices.Contains(found.claim.Methods, "client_secret_basic"); p.settings.ClientSecret == "" || !takesBasic {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{ClientID: p.settings.ClientID, ClientSecret: p.settings.ClientSecret, Endpoint: endpoint, RedirectURL: redirect,
		Scopes: strings.Fields(p.settings.Scopes)}
}

// Begin returns where the browser signs in, and what to seal for [Provider.Finish]. redirect is the address of the callback.
// silent: without asking the person anything; hint is then the e-mail of who is meant. The errors are ErrAway.
func (p *Provider) Begin(ctx context.Context, redirect string, silent bool, hint string) (location string, begun Attempt, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	found, err := p.discover(ctx)
	if err != nil {
		return "", Attempt{}, err
	}
	begun = Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	options := []oauth2.AuthCodeOption{oidc.Nonce(begun.Nonce), oauth2.S256ChallengeOption(begun.Verifier)}
	if silent {
		options = append(options, oauth2.SetAuthURLParam("prompt", "none"))
		if hint != "" {
			options = append(options, oauth2.SetAuthURLParam("login_hint", hint))
		}
	}
	return p.oauth(found, redirect).AuthCodeURL(begun.State, options...), begun, nil
}

// Finish redeems the code of a callback. The errors are [Refused] and ErrAway.
func (p *Provider) Finish(ctx context.Context, redirect string, begun Attempt, callback url.Values) (person Person, err error) {
	if begun.State == "" || subtle.ConstantTimeCompare([]byte(callback.Get("state")), []byte(begun.State)) != 1 {
		return person, &Refused{why: "this sign-in was not begun in this browser, or more than ten minutes ago; begin anew"}
	}
	from := callback.Get("iss")
	if from != "" && from != p.settings.Issuer {
		return person, errMixedUp
	}
	if code := callback.Get("error"); code != "" {
		return person, &Refused{Code: code, why: "the provider of accounts did not sign you in: " + printable(code)}
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	found, err := p.discover(ctx)
	if err != nil {
		return person, err
	}
	if from == "" && found.claim.SendsIss {
		return person, errMixedUp
	}
	ctx = oidc.ClientContext(ctx, p.client)
	tokens, err := p.oauth(found, redirect).Exchange(ctx, callback.Get("code"), oauth2.VerifierOption(begun.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response.StatusCode/100 == 4 {
		return person, &Refused{Code: refused.ErrorCode, why: "the provider of accounts does not accept the code: " + printable(cmp.Or(refused.ErrorCode, "without a reason")), err: err}
	} else if err != nil {
		return person, errors.Join(ErrAway, err)
	}
	text, _ := tokens.Extra("id_token").(string)
	if text == "" {
		return person, &Refused{why: "the provider of accounts sent no ID token; the scope openid is missing, perhaps"}
	}
	token, err := found.Verifier(&oidc.Config{ClientID: p.settings.ClientID, Now: func() time.Time { return p.now().Add(-leeway) }}).Verify(ctx, text)
	if err != nil && (ctx.Err() != nil || strings.Contains(err.Error(), "fetching keys")) { // it has no other sign
		return person, errors.Join(ErrAway, err)
	}
	if err != nil {
		return person, &Refused{why: "the ID token is not valid", err: err}
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(begun.Nonce)) != 1 {
		return person, &Refused{why: "the ID token is of another sign-in; begin anew"}
	}
	return p.personOf(token)
}

// errMixedUp refuses what another provider may have begun (RFC 9207).
var errMixedUp = &Refused{why: "the answer comes from another provider of accounts; begin anew"}

func (p *Provider) personOf(token *oidc.IDToken) (Person, error) {
	var claims map[string]json.RawMessage
	var known struct {
		Email    string `json:"email"`
		Verified any    `json:"email_verified"` // some send a text; only true counts
		For      string `json:"azp"`
	}
	if err := errors.Join(token.Claims(&claims), token.Claims(&known)); err != nil || token.Subject == "" || !isText(token.Subject, 255) || !isText(known.Email, 320) {
		return Person{}, &Refused{why: "the ID token has no subject, or claims that cannot be", err: err}
	}
	if known.For != "" && known.For != p.settings.ClientID {
		return Person{}, &Refused{why: "the ID token was issued to another client"}
	}
	person := Person{Issuer: p.settings.Issuer, Subject: token.Subject, Email: known.Email, Claim: string(claims[p.settings.RolesClaim])}
	if p.settings.RolesClaim == "email" && known.Verified != true {
		person.Claim += ", and email_verified is not true"
		return person, nil
	}
	var one string
	if json.Unmarshal(claims[p.settings.RolesClaim], &one) == nil && one != "" {
		person.Groups = []string{one}
	} else if json.Unmarshal(claims[p.settings.RolesClaim], &person.Groups) != nil {
		person.Groups = nil
	}
	return person, nil
}

// isText reports whether a text can be stored and shown.
func isText(text string, longest int) bool {
	return utf8.RuneCountInString(text) <= longest && !strings.ContainsFunc(text, unicode.IsControl)
}

// SignOut returns where the browser signs out at the provider, and comes back to after; empty: it has no such page, or does not
// answer.
func (p *Provider) SignOut(ctx context.Context, after string) string {
	found, err := p.discover(ctx)
	if err != nil || found.claim.EndSession == "" {
		return ""
	}
	u, _ := url.Parse(found.claim.EndSession) // discover has parsed it
	query := u.Query()
	query.Set("client_id", p.settings.ClientID)
	query.Set("post_logout_redirect_uri", after)
	u.RawQuery = query.Encode()
	return u.String()
}

// printable is a code of the provider's, as RFC 6749 allows it, or nothing of it.
func printable(code string) string {
	if len(code) > 64 || strings.ContainsFunc(code, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "for an unknown reason"
	}
	return code
}

// Roles returns the roles that the groups of a person give, each once.
func Roles(groups []string, of config.OIDCRoles) (roles []string) {
	for _, role := range []struct {
		name   string
		groups []string
	}{{"operator", of.Operator}, {"approver", of.Approver}, {"viewer", of.Viewer}} {
		if slices.ContainsFunc(role.groups, func(g string) bool { return slices.Contains(groups, g) }) {
			roles = append(roles, role.name)
		}
	}
	return roles
}
