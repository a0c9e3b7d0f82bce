package console

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/key"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/oidc"
)

// Accounts signs persons in at the company's provider of accounts.
type Accounts struct {
	*oidc.Provider

	settings config.OIDC
	seal     keyring.Keyring
}

// NewAccounts returns the accounts that sign in; nil: none do. secret is known to all apis, so that any of them takes a
// callback; without one only this process does.
func NewAccounts(settings config.Console, secret string) *Accounts {
	if !settings.ByAccount() {
		return nil
	}
	derived := hmac.New(sha256.New, []byte(cmp.Or(secret, rand.Text())))
	derived.Write([]byte("triprize console sign-in"))
	seal, _ := keyring.Parse(hex.EncodeToString(derived.Sum(nil)), "") // 32 bytes are a key
	return &Accounts{oidc.New(settings.OIDC, time.Now), settings.OIDC, seal}
}

const (
	// attemptFor is how long a browser may take to come back from the provider.
	attemptFor = 10 * time.Minute
	// formGrace is how much longer than their roles persons may send a form that they have filled in.
	formGrace = 10 * time.Minute
	// signOutPatience is how long a sign-out waits for the provider.
	signOutPatience = 2 * time.Second
	// mostAttempts is how many sign-ins may be under way in a browser: each tab that polls is renewed at the hour.
	mostAttempts = 8
)

// attemptCookie returns the cookie of a sign-in that is under way, over https or not.
func attemptCookie(secure bool, state string) string {
	return cookieName[secure] + "-sign-in-" + state[:min(len(state), 8)]
}

// attempt is what that cookie has, sealed.
type attempt struct {
	oidc.Attempt
	To     string    `json:"to"`     // the page that follows
	Silent bool      `json:"silent"` // the person is not asked: its roles are read anew
	Until  time.Time `json:"until"`
}

// origin is this server, as the browser knows it.
func origin(f *fiber.Ctx, secure bool) string {
	return map[bool]string{true: "https://", false: "http://"}[secure] + string(f.Request().Header.Host())
}

// callbackPath is where the provider sends a browser back.
const callbackPath = Path + "/sign-in/callback"

// beginSignIn sends a browser to the provider.
func (c *console) beginSignIn(f *fiber.Ctx) error {
	secure, ok := c.Secure(f)
	if !ok {
		return errInTheClear
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	if err := c.Charge(ctx, f, errNotBegun); fault.CodeOf(err) == fault.RateLimited {
		return err
	}
	made := attempt{To: local(f.Query("to"), Path+"/now"), Silent: f.Query("silent") != "", Until: time.Now().Add(attemptFor)}
	session, _ := c.Session(f, false) // of nobody there is no hint
	location, begun, err := c.Accounts.Begin(ctx, origin(f, secure)+callbackPath, made.Silent, session.Email)
	if err != nil {
		return c.notSignedIn(err)
	}
	made.Attempt = begun
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	var others []string
	for name := range f.Request().Header.Cookies() {
		if strings.HasPrefix(string(name), attemptCookie(secure, "")) {
			others = append(others, string(name))
		}
	}
	if len(others) >= mostAttempts {
		for _, name := range others {
			c.setCookie(f, name, secure, "", -1)
		}
	}
	name := attemptCookie(secure, begun.State)
	c.setCookie(f, name, secure, base64.RawURLEncoding.EncodeToString(c.Accounts.seal.Seal(text, []byte(name))), int(attemptFor.Seconds()))
	return f.Redirect(location, http.StatusSeeOther)
}

// attemptOf returns the sign-in of a cookie; the zero value if it is none of ours, or too old.
func (c *console) attemptOf(f *fiber.Ctx, name string) (a attempt) {
	sealed, err := base64.RawURLEncoding.DecodeString(f.Cookies(name))
	if err != nil {
		return attempt{}
	}
	text, err := c.Accounts.seal.Open(sealed, []byte(name))
	if err != nil || json.Unmarshal(text, &a) != nil || time.Now().After(a.Until) {
		return attempt{}
	}
	return a
}

// endSignIn is the callback: it opens a session for who has signed in at the provider, or renews it.
func (c *console) endSignIn(f *fiber.Ctx) error {
	secure, ok := c.Secure(f)
	if !ok {
		return errInTheClear
	}
	query, _ := url.ParseQuery(string(f.Request().URI().QueryString())) // what cannot be read is missing
	name := attemptCookie(secure, query.Get("state"))
	begun := c.attemptOf(f, name)
	if begun.State != "" {
		c.setCookie(f, name, secure, "", -1)
	} else if session, err := c.Session(f, false); err == nil && !IsStale(f, session) { // another tab, or this callback before, has done it
		return f.Redirect(Path+"/now", http.StatusSeeOther)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	if err := c.Charge(ctx, f, errNotBegun); fault.CodeOf(err) == fault.RateLimited { // each costs requests to the provider
		return err
	}
	found, err := c.Accounts.Finish(ctx, origin(f, secure)+callbackPath, begun.Attempt, query)
	if refused, isRefused := errors.AsType[*oidc.Refused](err); isRefused && begun.Silent {
		c.Logger.Info("a session is not renewed", "reason", refused.Error())
		return f.Redirect(Path+"/sign-in?to="+url.QueryEscape(begun.To), http.StatusSeeOther)
	}
	if err != nil {
		return c.notSignedIn(err)
	}
	person := key.Person{Issuer: found.Issuer, Subject: found.Subject, Email: found.Email}
	for _, role := range oidc.Roles(found.Groups, c.Accounts.settings.Roles) {
		person.Roles = append(person.Roles, key.Role(role))
	}
	if err := c.Sessions.NoteRoles(ctx, person); err != nil {
		return err
	}
	cookie := f.Cookies(cookieName[secure])
	if len(person.Roles) == 0 {
		_ = c.Sessions.Close(ctx, cookie) // otherwise it ends by itself
		return c.noRole(found)
	}
	if begun.Silent { // it opens nothing: the session may have ended meanwhile, or be another person's
		renewed, err := c.Sessions.Renew(ctx, cookie, person)
		if err != nil {
			return err
		}
		if !renewed {
			begun.To = Path + "/sign-in?to=" + url.QueryEscape(begun.To)
		}
		return f.Redirect(begun.To, http.StatusSeeOther)
	}
	_ = c.Sessions.Close(ctx, cookie) // who signs in has a new session: the cookie may be known to others
	opened, fresh, err := c.Sessions.OpenFor(ctx, person)
	if err != nil {
		return err
	}
	c.setCookie(f, cookieName[secure], secure, fresh, int(key.SessionLength.Seconds()))
	c.Logger.Info("a person has signed in to the console", "person", opened.Operator, "subject", opened.Subject, "roles", opened.Roles)
	return f.Redirect(begun.To, http.StatusSeeOther)
}

// errNotBegun is charged to the address of whoever begins or ends a sign-in.
var errNotBegun = fault.New(fault.Forbidden, "this sign-in was not begun in this browser")

// cut is the beginning of an error: that of a provider may have all of its answer.
func cut(err error) string {
	text := fmt.Sprint(err)
	return text[:min(len(text), 300)]
}

// notSignedIn says why nobody is signed in, and never what the provider's answer had.
func (c *console) notSignedIn(err error) error {
	if refused, ok := errors.AsType[*oidc.Refused](err); ok {
		c.Logger.Info("a sign-in is refused", "reason", refused.Error(), "error", cut(errors.Unwrap(err)))
		return fault.New(fault.Forbidden, "%s", refused.Error())
	}
	c.Logger.Warn("the provider of accounts does not answer", "issuer", c.Accounts.settings.Issuer, "error", cut(err))
	return fault.New(fault.Unavailable, "the provider of accounts (%s) does not answer as it should; try again in a moment. Sessions that exist go on", c.Accounts.settings.Issuer)
}

// noRole refuses a person without a role.
func (c *console) noRole(found oidc.Person) error {
	had := "is missing from the ID token"
	if found.Claim != "" {
		had = "had " + found.Claim[:min(len(found.Claim), 500)]
	}
	return fault.New(fault.Forbidden, "you are signed in at the provider as %s, and your account has no role here: the claim %s %s. Who runs this installation gives roles to its values (console.oidc.roles)",
		cmp.Or(found.Email, found.Subject), c.Accounts.settings.RolesClaim, had)
}

// IsStale reports whether the roles of a session must be read anew before a request.
func IsStale(f *fiber.Ctx, session key.Session) bool {
	believed := key.RolesFor
	if f.Method() == http.MethodPost {
		believed += formGrace
	}
	return session.IsPerson() && time.Since(session.CheckedAt) > believed
}

// Renewal is where the roles of a session are read anew, and that leads back.
func Renewal(to string) string {
	return Path + "/sign-in/oidc?silent=1&to=" + url.QueryEscape(to)
}
