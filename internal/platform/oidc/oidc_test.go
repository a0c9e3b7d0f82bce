package oidc_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"triprize/internal/platform/config"
	"triprize/internal/platform/oidc"
	"triprize/internal/testkit/accounts"
	"triprize/internal/testkit/servers"
)

const callback = "http://127.0.0.1:8080/console/sign-in/callback"

func settingsOf(bank *accounts.Provider) config.OIDC {
	return config.OIDC{Issuer: bank.URL, ClientID: accounts.ClientID, ClientSecret: accounts.Secret, Scopes: "openid email profile", RolesClaim: "groups"}
}

func open(t *testing.T) (*accounts.Provider, *oidc.Provider) {
	t.Helper()
	at := accounts.New(t)
	at.Do(func(p *accounts.Provider) {
		p.Person = jwt.MapClaims{"sub": "mina", "email": "mina@example.com", "email_verified": true, "groups": []string{"ops"}}
	})
	return at, oidc.New(settingsOf(at), time.Now)
}

// visit is the browser, which follows the provider's redirect to the callback.
func visit(t *testing.T, location string) url.Values {
	t.Helper()
	browser := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := browser.Get(location) //nolint:noctx // on this machine
	if err != nil {
		t.Fatal(err)
	}
	servers.NoError(t, answer.Body.Close())
	back, err := answer.Location()
	if err != nil {
		t.Fatal(err)
	}
	return back.Query()
}

// signIn goes the whole way. change changes what the callback gets.
func signIn(t *testing.T, p *oidc.Provider, change func(begun *oidc.Attempt, query url.Values)) (oidc.Person, error) {
	t.Helper()
	location, begun, err := p.Begin(t.Context(), callback, false, "")
	if err != nil {
		return oidc.Person{}, err
	}
	query := visit(t, location)
	if change != nil {
		change(&begun, query)
	}
	return p.Finish(t.Context(), callback, begun, query)
}

func TestAPersonIsIssuerAndSubject(t *testing.T) {
	t.Parallel()
	at, p := open(t)
	if at.Count("/.well-known/openid-configuration") != 0 {
		t.Error("something was fetched before anybody signed in")
	}
	for range 2 {
		got, err := signIn(t, p, nil)
		if err != nil || got.Issuer != at.URL || got.Subject != "mina" || got.Email != "mina@example.com" || !slices.Equal(got.Groups, []string{"ops"}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if n, keys := at.Count("/.well-known/openid-configuration"), at.Count("/keys"); n != 1 || keys != 1 {
		t.Errorf("two sign-ins have discovered %d times, and fetched keys %d times", n, keys)
	}
	if out := p.SignOut(t.Context(), "https://shop.example/console/sign-in"); !strings.HasPrefix(out, at.URL+"/logout?client_id=triprize&post_logout_redirect_uri=https") {
		t.Error(out)
	}
}

// Whatever is wrong with a callback or with the token behind it, nobody is signed in.
func TestACallbackOfAnotherSignInSignsNobodyIn(t *testing.T) {
	t.Parallel()
	at, p := open(t)
	_, other, err := p.Begin(t.Context(), callback, false, "")
	servers.NoError(t, err)
	for name, change := range map[string]func(begun *oidc.Attempt, query url.Values){
		"another's state":         func(_ *oidc.Attempt, query url.Values) { query.Set("state", other.State) },
		"no state":                func(_ *oidc.Attempt, query url.Values) { query.Del("state") },
		"no cookie":               func(begun *oidc.Attempt, query url.Values) { *begun = oidc.Attempt{}; query.Del("state") },
		"another issuer":          func(_ *oidc.Attempt, query url.Values) { query.Set("iss", "https://evil.example") },
		"no issuer":               func(_ *oidc.Attempt, query url.Values) { query.Del("iss") }, // the provider says that it sends it
		"another verifier":        func(begun *oidc.Attempt, _ url.Values) { begun.Verifier = other.Verifier },
		"another nonce":           func(begun *oidc.Attempt, _ url.Values) { begun.Nonce = other.Nonce },
		"a code that was made up": func(_ *oidc.Attempt, query url.Values) { query.Set("code", "x") },
		"no code":                 func(_ *oidc.Attempt, query url.Values) { query.Del("code") },
		"an error":                func(_ *oidc.Attempt, query url.Values) { query.Set("error", "access_denied") },
	} {
		got, err := signIn(t, p, change)
		if refused, ok := errors.AsType[*oidc.Refused](err); !ok || got.Subject != "" || (refused.Code == "access_denied") != (name == "an error") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	location, begun, err := p.Begin(t.Context(), callback, false, "")
	servers.NoError(t, err)
	query := visit(t, location)
	if _, err := p.Finish(t.Context(), callback, begun, query); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Finish(t.Context(), callback, begun, query); err == nil {
		t.Errorf("a code was redeemed twice: %+v", got)
	}
	at.Do(func(p *accounts.Provider) { p.Person = nil })
	_, err = signIn(t, p, nil)
	if refused, ok := errors.AsType[*oidc.Refused](err); !ok || refused.Code != "login_required" {
		t.Errorf("nobody is signed in at the provider: %v", err)
	}
}

func TestATokenOfAnotherSignsNobodyIn(t *testing.T) {
	t.Parallel()
	at, p := open(t)
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	servers.NoError(t, err)
	type token = func(claims jwt.MapClaims, header map[string]any)
	for name, c := range map[string]struct {
		change token
		sign   func(*jwt.Token) (string, error)
	}{
		"alg none": {sign: func(t *jwt.Token) (string, error) {
			return jwt.NewWithClaims(jwt.SigningMethodNone, t.Claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
		}},
		"HS256 with the client's secret": {sign: func(t *jwt.Token) (string, error) {
			return jwt.NewWithClaims(jwt.SigningMethodHS256, t.Claims).SignedString([]byte(accounts.Secret))
		}},
		"another key":    {sign: func(t *jwt.Token) (string, error) { return t.SignedString(stranger) }},
		"another kid":    {change: func(_ jwt.MapClaims, header map[string]any) { header["kid"] = "2" }, sign: func(t *jwt.Token) (string, error) { return t.SignedString(stranger) }},
		"no subject":     {change: func(claims jwt.MapClaims, _ map[string]any) { delete(claims, "sub") }},
		"expired":        {change: func(claims jwt.MapClaims, _ map[string]any) { claims["exp"] = time.Now().Add(-2 * time.Minute).Unix() }},
		"another nonce":  {change: func(claims jwt.MapClaims, _ map[string]any) { claims["nonce"] = "x" }},
		"no nonce":       {change: func(claims jwt.MapClaims, _ map[string]any) { delete(claims, "nonce") }},
		"another client": {change: func(claims jwt.MapClaims, _ map[string]any) { claims["aud"] = "shop" }},
		"a wrong azp": {change: func(claims jwt.MapClaims, _ map[string]any) {
			claims["aud"] = []string{accounts.ClientID, "shop"}
			claims["azp"] = "shop"
		}},
		"another issuer":          {change: func(claims jwt.MapClaims, _ map[string]any) { claims["iss"] = "https://evil.example" }},
		"a long subject":          {change: func(claims jwt.MapClaims, _ map[string]any) { claims["sub"] = strings.Repeat("x", 256) }},
		"a NUL in the e-mail":     {change: func(claims jwt.MapClaims, _ map[string]any) { claims["email"] = "a\x00" }},
		"a number for the e-mail": {change: func(claims jwt.MapClaims, _ map[string]any) { claims["email"] = 7 }},
	} {
		at.Do(func(p *accounts.Provider) { p.Token, p.Sign = c.change, c.sign })
		if got, err := signIn(t, p, nil); err == nil || got.Subject != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		} else if _, ok := errors.AsType[*oidc.Refused](err); !ok {
			t.Errorf("%s is no refusal: %v", name, err)
		}
	}
}

func TestGroupsAreAStringOrAList(t *testing.T) {
	t.Parallel()
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprint("group-", i)
	}
	of := config.OIDCRoles{Operator: []string{"ops", "admins"}, Approver: []string{"finance"}, Viewer: []string{"support", "group-9999"}}
	for name, c := range map[string]struct {
		claim string
		given jwt.MapClaims
		want  []string
	}{
		"a list":              {"groups", jwt.MapClaims{"groups": []string{"finance", "ops", "admins", "x"}}, []string{"operator", "approver"}},
		"a text":              {"groups", jwt.MapClaims{"groups": "support"}, []string{"viewer"}},
		"many":                {"groups", jwt.MapClaims{"groups": many}, []string{"viewer"}},
		"none":                {"groups", jwt.MapClaims{}, nil},
		"a number":            {"groups", jwt.MapClaims{"groups": 7}, nil},
		"numbers":             {"groups", jwt.MapClaims{"groups": []any{"ops", 7}}, nil},
		"an object":           {"groups", jwt.MapClaims{"groups": map[string]any{"ops": true}}, nil},
		"an address":          {"email", jwt.MapClaims{"email": "ops", "email_verified": true}, []string{"operator"}},
		"one not verified":    {"email", jwt.MapClaims{"email": "ops", "email_verified": false}, nil},
		"verified as a text":  {"email", jwt.MapClaims{"email": "ops", "email_verified": "true"}, nil},
		"nothing about it":    {"email", jwt.MapClaims{"email": "ops"}, nil},
		"another claim":       {"roles", jwt.MapClaims{"groups": "ops", "roles": []string{"finance"}}, []string{"approver"}},
		"the name of a group": {"groups", jwt.MapClaims{"groups": []string{"ops "}}, nil},
	} {
		at := accounts.New(t)
		c.given["sub"] = "mina"
		at.Do(func(p *accounts.Provider) { p.Person = c.given })
		settings := settingsOf(at)
		settings.RolesClaim = c.claim
		got, err := signIn(t, oidc.New(settings, time.Now), nil)
		if roles := oidc.Roles(got.Groups, of); err != nil || got.Subject != "mina" || !slices.Equal(roles, c.want) {
			t.Errorf("%s: %v, %v", name, roles, err)
		}
	}
}

// A provider that hangs, floods, redirects or is something else holds a sign-in up for a bounded time, and its words are in no
// text for people.
func TestAProviderThatMisbehavesSignsNobodyIn(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-released:
			}
		},
		"floods": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte(" "), 1<<20)) },
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/.well-known/openid-configuration", http.StatusFound)
		},
		"fails": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "secret words", http.StatusInternalServerError)
		},
		"says nonsense": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>secret words")) },
	} {
		for _, path := range []string{"/.well-known/openid-configuration", "/token", "/keys"} {
			at, p := open(t)
			at.Do(func(p *accounts.Provider) { p.Answer[path] = answer })
			ctx := t.Context()
			if name == "hangs" { // the bound is the caller's here, so that nobody waits for the real one
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
			}
			location, begun, err := p.Begin(ctx, callback, false, "")
			if err == nil {
				_, err = p.Finish(ctx, callback, begun, visit(t, location))
			}
			if _, refused := errors.AsType[*oidc.Refused](err); refused || !errors.Is(err, oidc.ErrAway) {
				t.Errorf("%s, %s: %v", name, path, err)
			}
			if n := at.Count("/token"); n > 1 {
				t.Errorf("%s, %s: a code is redeemed %d times", name, path, n)
			}
		}
	}
	close(released)
	for _, issuer := range []string{"http://accounts.example", "ftp://accounts.example"} {
		if _, _, err := oidc.New(config.OIDC{Issuer: issuer}, time.Now).Begin(t.Context(), callback, false, ""); !errors.Is(err, oidc.ErrAway) {
			t.Errorf("%s: %v", issuer, err)
		}
	}
}

// Many who sign in at once make one discovery.
func TestOneSignInDiscoversForAll(t *testing.T) {
	t.Parallel()
	at, p := open(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := signIn(t, p, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := at.Count("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("%d discoveries", n)
	}
}
