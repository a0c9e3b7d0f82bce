package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/key"
)

// The names of the cookie: a browser accepts one that begins with __Host- over https only, and for this host only.
const (
	secureCookie = "__Host-triprize"
	plainCookie  = "triprize-console"
)

func cookieName(secure bool) string {
	if secure {
		return secureCookie
	}
	return plainCookie
}

// Session returns the session of a browser's request, or an unauthenticated Error.
func (o Options) Session(f *fiber.Ctx, byOperator bool) (key.Session, error) {
	secure, ok := o.Secure(f)
	cookie := f.Cookies(cookieName(secure))
	if !ok || cookie == "" {
		return key.Session{}, fault.New(fault.Unauthenticated, "sign in")
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	return o.Sessions.Find(ctx, cookie, byOperator)
}

type sessionKey struct{}

func sessionOf(f *fiber.Ctx) key.Session {
	session, _ := f.Locals(sessionKey{}).(key.Session)
	return session
}

func (c *console) requireSession(f *fiber.Ctx) error {
	session, err := c.Session(f, !isFragment(f))
	if err != nil {
		return err
	}
	f.Locals(sessionKey{}, session)
	return f.Next()
}

// askToSignIn leads to the sign-in page, and back after it.
func (c *console) askToSignIn(f *fiber.Ctx) error {
	signIn := Path + "/sign-in"
	if f.Method() == http.MethodGet && !isFragment(f) {
		signIn += "?to=" + url.QueryEscape(f.OriginalURL())
	} else if from, err := url.Parse(f.Get(fiber.HeaderReferer)); err == nil && from.Path != "" {
		signIn += "?to=" + url.QueryEscape(from.RequestURI())
	}
	if isFragment(f) || strings.HasPrefix(f.Get(fiber.HeaderAccept), fiber.MIMEApplicationJSON) {
		f.Set("HX-Redirect", signIn)
		return f.Status(http.StatusUnauthorized).JSON(fiber.Map{"code": fault.Unauthenticated, "detail": "sign in at " + signIn})
	}
	return f.Redirect(signIn, http.StatusSeeOther)
}

func (c *console) showSignIn(f *fiber.Ctx) error {
	if _, err := c.Session(f, false); err == nil {
		return f.Redirect(local(f.Query("to"), Path+"/now"), http.StatusSeeOther)
	}
	return c.askForKey(f, newForm(f), nil)
}

func (c *console) askForKey(f *fiber.Ctx, filled *form, p *problem) error {
	_, ok := c.Secure(f)
	if p != nil {
		f.Status(p.Status)
	}
	return c.show(f, "sign-in", view{Title: "Sign in", Form: filled, Problem: p, Data: struct {
		To        string
		Forbidden bool // a cookie would travel in the clear
	}{local(f.Query("to"), Path+"/now"), !ok}})
}

func (c *console) signIn(f *fiber.Ctx) error {
	filled := newForm(f)
	secure, ok := c.Secure(f)
	if !ok {
		return c.askForKey(f, filled, &problem{Status: http.StatusForbidden, Detail: "sign in over https, or from this machine"})
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	cookie, err := c.Sessions.Open(ctx, filled.text("/key"), filled.text("/operator"))
	if err = c.Charge(f, err); err != nil {
		p := c.problemOf(err)
		filled.take(&p)
		filled.values.Del("/key")
		return c.askForKey(f, filled, &p)
	}
	c.setCookie(f, secure, cookie)
	return f.Redirect(local(f.Query("to"), Path+"/now"), http.StatusSeeOther)
}

func (c *console) signOut(f *fiber.Ctx) error {
	secure, _ := c.Secure(f)
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	err := c.Sessions.Close(ctx, f.Cookies(cookieName(secure)))
	c.setCookie(f, secure, "")
	if err != nil {
		return err
	}
	return f.Redirect(Path+"/sign-in", http.StatusSeeOther)
}

func (c *console) setCookie(f *fiber.Ctx, secure bool, value string) {
	age := int(key.SessionLength.Seconds())
	if value == "" {
		age = -1
	}
	cookie := http.Cookie{Name: cookieName(secure), Value: value, Path: "/", MaxAge: age, Secure: secure, HttpOnly: true, SameSite: http.SameSiteLaxMode} //nolint:gosec // over http from this machine only
	f.Append(fiber.HeaderSetCookie, cookie.String())
}
