package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"triprize.example/client"
	"triprize/internal/domain/fault"
	"triprize/internal/key"
	"triprize/internal/trail"
)

// cookieName is that of the cookie, over https or not: a browser accepts one that begins with __Host- over https only, and for this host only.
var cookieName = map[bool]string{true: "__Host-triprize", false: "triprize-console"}

// Session returns the session of a browser's request, or an unauthenticated Error.
func (o Options) Session(f *fiber.Ctx, byOperator bool) (key.Session, error) {
	secure, ok := o.Secure(f)
	cookie := f.Cookies(cookieName[secure])
	if !ok || cookie == "" {
		return key.Session{}, errSignedOut
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	session, err := o.Sessions.Find(ctx, cookie, byOperator)
	if err == nil && !session.IsPerson() && !o.ByKey { // keys have signed in until the settings changed
		return key.Session{}, errSignedOut
	}
	return session, err
}

type sessionKey struct{}

// SessionOf returns the session for which a request acts: one of a page, or one to the API from the console. Without one
// it has no client.
func SessionOf(f *fiber.Ctx) key.Session {
	session, _ := f.Locals(sessionKey{}).(key.Session)
	return session
}

// acts reports whether the session of a request may change something.
func acts(f *fiber.Ctx) bool { return SessionOf(f).Has(key.Operator) }

// ActFor lets a request to the API act for a session.
func ActFor(request *fasthttp.RequestCtx, session key.Session) {
	request.SetUserValue(sessionKey{}, session)
}

func (c *console) requireSession(f *fiber.Ctx) error {
	session, err := c.Session(f, !isFragment(f))
	if err != nil {
		return err
	}
	if IsStale(f, session) {
		return c.renew(f)
	}
	f.Locals(sessionKey{}, session)
	return f.Next()
}

// renew has the roles of a person read anew: of who looks at a page unnoticed. A form waits in the browser meanwhile.
func (c *console) renew(f *fiber.Ctx) error {
	switch {
	case c.Accounts == nil: // any more
	case isFragment(f):
		f.Set("HX-Redirect", Renewal(pageOfFragment(f)))
		return f.Status(http.StatusUnauthorized).JSON(fiber.Map{"code": fault.Unauthenticated, "detail": "the roles of the session are read anew"})
	case f.Method() == http.MethodGet:
		return f.Redirect(Renewal(f.OriginalURL()), http.StatusSeeOther)
	}
	return errSignedOut
}

// pageOfFragment is the page that shows a fragment.
func pageOfFragment(f *fiber.Ctx) string {
	if from, err := url.Parse(f.Get(fiber.HeaderReferer)); err == nil && from.Path != "" {
		return from.RequestURI()
	}
	return Path + "/now"
}

// errSignedOut leads to the sign-in page.
var errSignedOut = fault.New(fault.Unauthenticated, "sign in")

// askToSignIn leads to the sign-in page, and back after it.
func (c *console) askToSignIn(f *fiber.Ctx) error {
	signIn := Path + "/sign-in"
	isForm := f.Method() == http.MethodPost && !isFragment(f) && f.Get(fiber.HeaderContentType) == fiber.MIMEApplicationForm
	if length := f.Request().Header.ContentLength(); isForm && length > 0 && length < mostTyped-mostTyped/4 { // a key and a name are added
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
		defer cancel()
		filled, p := newForm(f), c.problemOf(c.Charge(ctx, f, errSessionEnded))
		filled.values["form"] = f.Path()
		if p.Status != http.StatusTooManyRequests {
			p.Status = http.StatusUnauthorized
		}
		return c.askForKey(f.Status(p.Status), filled, &p)
	}
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
	if _, ok := c.Secure(f); !ok {
		return errInTheClear
	}
	if c.Accounts != nil {
		return c.show(f, "sign-in", view{Title: "Sign in", Data: c.signInData(&form{}, local(f.Query("to"), Path+"/now"))})
	}
	f.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return f.Send(c.signInPage)
}

// signInData is what the sign-in page shows, and what waits in it.
func (c *console) signInData(filled *form, to string) fiber.Map {
	data := fiber.Map{"Form": filled, "ByKey": c.ByKey, "Action": Path + "/sign-in?to=" + url.QueryEscape(to)}
	if c.Accounts != nil {
		data["Accounts"], data["Link"], data["Waits"] = c.Accounts.settings.Issuer, Path+"/sign-in/oidc?to="+url.QueryEscape(to), filled.values["form"]
	}
	return data
}

// mostTyped is how many bytes of a form are read from somebody who is not signed in.
const mostTyped = 8 << 10

// errSessionEnded is what the sign-in page says to who has sent a form. The form itself waits in that page, in the
// browser: nothing of it is stored here.
var errSessionEnded = fault.New(fault.Forbidden, "Nothing was done: your session has ended. Sign in, and the form is here again as you have filled it.")

// errInTheClear refuses a session whose cookie would travel in the clear.
var errInTheClear = fault.New(fault.Forbidden,
	"sign in over https (the proxy must be in api.trusted_proxies and send X-Forwarded-Proto: https), or over http from the api's own host")

func (c *console) askForKey(f *fiber.Ctx, filled *form, p *client.Problem) error {
	to := local(f.Query("to"), Path+"/now")
	return c.show(f, "sign-in", view{Title: "Sign in", Problem: p, Data: c.signInData(filled, to)})
}

func (c *console) signIn(f *fiber.Ctx) error {
	secure, ok := c.Secure(f)
	if !ok {
		return errInTheClear
	}
	if !c.ByKey {
		return fault.New(fault.Forbidden, "keys do not sign in here: sign in with your account")
	}
	if f.Request().Header.ContentLength() > mostTyped { // nobody knows who sends it
		return fault.New(fault.BodyTooLarge, "a key and a name are shorter")
	}
	filled := newForm(f)
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	if c.Accounts != nil { // beside accounts it is for emergencies
		ctx = trail.With(ctx, &trail.Actor{Address: c.Address(f), Via: "console", Operation: trail.SignInByKey})
	}
	opened, cookie, err := c.Sessions.Open(ctx, filled.text("/key"), filled.text("/operator"))
	if err = c.Charge(ctx, f, err); err != nil {
		p := c.problemOf(err)
		filled.take(&p)
		if p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden {
			filled.mark("/key", p.Detail)
		}
		delete(filled.values, "/key")
		return c.askForKey(f.Status(p.Status), filled, &p)
	}
	if c.Accounts != nil {
		c.ByKeys.Inc()
	}
	_ = c.Sessions.Close(ctx, f.Cookies(cookieName[secure])) // otherwise it ends by itself
	c.setCookie(f, cookieName[secure], secure, cookie, int(key.SessionLength.Seconds()))
	c.Logger.Info("an operator has signed in to the console", "key_prefix", opened.KeyPrefix, "operator", opened.Operator)
	if at := filled.text("form"); strings.HasPrefix(at, Path+"/") { // its form is shown, and not sent
		for _, name := range []string{"/key", "/operator"} {
			f.Request().PostArgs().Del(name)
		}
		f.Request().Header.SetCookie(cookieName[secure], cookie)
		f.Path(at)
		return f.RestartRouting()
	}
	return f.Redirect(local(f.Query("to"), Path+"/now"), http.StatusSeeOther)
}

// signOut ends a session, and then a person's at the provider. form-action lets no form be redirected there: a page leads there.
func (c *console) signOut(f *fiber.Ctx) error {
	secure, _ := c.Secure(f)
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	session, _ := c.Session(f, false)
	err := c.Sessions.Close(ctx, f.Cookies(cookieName[secure]))
	c.setCookie(f, cookieName[secure], secure, "", -1)
	if err != nil {
		return err
	}
	if session.IsPerson() && c.Accounts != nil {
		ctx, cancel := context.WithTimeout(ctx, signOutPatience)
		defer cancel()
		if out := c.Accounts.SignOut(ctx, origin(f, secure)+Path+"/sign-in"); out != "" {
			f.Set("Refresh", "0; url="+out)
			return c.show(f, "sign-in", view{Title: "Signed out", Data: fiber.Map{"Out": out}})
		}
	}
	return f.Redirect(Path+"/sign-in", http.StatusSeeOther)
}

func (c *console) setCookie(f *fiber.Ctx, name string, secure bool, value string, age int) {
	cookie := http.Cookie{Name: name, Value: value, Path: "/", MaxAge: age, //nolint:gosec // over http from this machine only
		Secure: secure, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	f.Response().Header.Add(fiber.HeaderSetCookie, cookie.String()) // Append would make one of two
}
