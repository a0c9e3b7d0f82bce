// Package console serves the pages for operators, at /console.
//
// It is a client of the API: it reads and changes what an operator's key may, by the same requests, in the same process
// (Options.API). It keeps nothing but the curves of the last hour. A page is HTML that works without scripts; what
// moves on it is a fragment that is asked for again every two seconds and rendered once for all who look ([live]).
package console

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"

	"triprize.example/client"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/key"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
	pages "triprize/web/console"
)

// Options are what the console needs of the api that serves it.
type Options struct {
	Sessions *key.Sessions
	Accounts *Accounts          // nil: there are none, and keys sign in
	ByKey    bool               // keys sign in, too
	ByKeys   prometheus.Counter // counts their sign-ins beside accounts
	Curves   *Curves
	API      func(*fiber.Ctx, key.Session) http.RoundTripper // sends the requests of a session
	DB       postgres.DB                                     // to find things
	Charge   func(context.Context, *fiber.Ctx, error) error  // for what is refused, to the address that it comes from; returns what is answered
	Address  func(*fiber.Ctx) string                         // of a caller
	Secure   func(*fiber.Ctx) (secure, ok bool)              // whether the browser asks over https; not ok: it must not have a session
	Timeout  time.Duration                                   // of a request to the API
	Logger   *slog.Logger
}

// Path is where the console is.
const Path = "/console"

// policy lets pages load and run what this server serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

type console struct {
	Options
	pages      map[bool]map[string]*template.Template // for who may change something, and for who reads
	readers    map[string]reader                      // of the pages that move
	fragments  *readcache.Cache[fragment, rendered]
	signInPage []byte
	crossSite  *http.CrossOriginProtection
}

// Mount registers the console. Its static files are among the public ones.
func Mount(app *fiber.App, options Options) {
	c := &console{Options: options, pages: map[bool]map[string]*template.Template{true: parsePages(pages.Files, true), false: parsePages(pages.Files, false)}, readers: make(map[string]reader), crossSite: http.NewCrossOriginProtection()}
	c.openFragments()
	var b bytes.Buffer
	_ = c.pages[false]["sign-in"].ExecuteTemplate(&b, "layout", view{Title: "Sign in", Path: Path + "/sign-in", Data: fiber.Map{"Form": &form{}, "ByKey": true}}) // a test asks for it
	c.signInPage = b.Bytes()
	app.Get(Path, func(f *fiber.Ctx) error { return f.Redirect(Path+"/now", http.StatusSeeOther) })
	r := app.Group(Path, c.protect)
	r.Get("/sign-in", c.showSignIn)
	r.Post("/sign-in", c.signIn)
	if c.Accounts != nil {
		r.Get("/sign-in/oidc", c.beginSignIn)
		r.Get("/sign-in/callback", c.endSignIn)
	}
	r.Post("/sign-out", c.signOut)
	r.Use(c.requireSession)
	c.act(r, key.Operator, "/campaigns/new", draftForm) // new is not the id of a campaign
	c.act(r, key.Operator, "/campaigns/:id/edit", draftForm)
	c.act(r, key.Operator, "/discrepancies/explain", explainForm)
	c.mountPages(r)
	c.actOn(r, key.Operator, slices.Concat(otherCommands, campaignCommands))
	c.actOn(r, key.Approver, decisions)
}

// protect refuses commands from pages of other sites, and answers errors with a page.
func (c *console) protect(f *fiber.Ctx) error {
	f.Set(fiber.HeaderContentSecurityPolicy, policy)
	f.Set(fiber.HeaderReferrerPolicy, "same-origin")                                                                    // a form of ours says where it comes from
	header := http.Header{"Sec-Fetch-Site": {f.Get("Sec-Fetch-Site")}, fiber.HeaderOrigin: {f.Get(fiber.HeaderOrigin)}} // empty: missing
	// Its body is not read yet.
	err := c.crossSite.Check(&http.Request{Method: f.Method(), Host: string(f.Request().Header.Host()), URL: &url.URL{Path: f.Path()}, Header: header})
	if err != nil {
		err = fault.New(fault.Forbidden, "a page of another site has sent this")
	} else if err = f.Next(); err == nil {
		return nil
	}
	return c.showProblem(f, err)
}

// api returns a client of the API that acts for the session of a request.
func (c *console) api(f *fiber.Ctx) *client.Client { return c.client(c.API(f, SessionOf(f))) }

func (c *console) client(transport http.RoundTripper) *client.Client {
	api, _ := client.New("http://console", "session", // fails only for a wrong address or credential
		client.WithHTTPClient(&http.Client{Transport: transport}), client.WithUserAgent("triprize-console"),
		client.WithRetry(client.RetryPolicy{Attempts: 1}), client.WithTimeout(c.Timeout+time.Second))
	return api
}

// problemOf returns what an error says to an operator. The cause of an error of ours is in the log.
func (c *console) problemOf(err error) client.Problem {
	if refused, ok := errors.AsType[*client.Error](err); ok {
		return refused.Problem
	}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		p := client.Problem{Status: resource.Statuses[own.Code.Kind()], Code: string(own.Code), Detail: own.Message}
		for _, field := range own.Fields {
			p.Errors = append(p.Errors, client.FieldError{Pointer: field.Pointer, Detail: field.Detail})
		}
		return p
	}
	if framework, ok := errors.AsType[*fiber.Error](err); ok {
		return client.Problem{Status: framework.Code, Detail: "there is no such page"}
	}
	c.Logger.Warn("a page of the console failed", "error", err)
	detail := "no answer came in time: the api or its database is busy, or what this is about is locked; try again in a moment"
	if !errors.Is(err, context.DeadlineExceeded) {
		detail = "the page cannot be shown now; the log of this api says why"
	}
	return client.Problem{Status: http.StatusServiceUnavailable, Detail: detail}
}

// showProblem answers with an error: a page, or the fragment of one.
func (c *console) showProblem(f *fiber.Ctx, err error) error {
	p := c.problemOf(err)
	if p.Code == string(fault.Unauthenticated) {
		return c.askToSignIn(f)
	}
	if SessionOf(f).Client == "" && p.Status < http.StatusInternalServerError {
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
		defer cancel()
		if limited := c.Charge(ctx, f, err); !errors.Is(err, errInTheClear) { // its text says what to set
			p = c.problemOf(limited)
		}
	}
	f.Status(p.Status)
	if isFragment(f) {
		return c.render(f, "problem", "problem", p)
	}
	v := view{Title: "Not done", Problem: &p}
	switch {
	case f.Method() != http.MethodPost:
		at := f.OriginalURL()
		if f.Path() == callbackPath { // a code is redeemed once
			at = Path + "/sign-in"
		}
		v.Title, v.Data = "Not shown", local(at, Path+"/now")
	case p.Status >= http.StatusInternalServerError && SessionOf(f).Client != "": // never what another site has sent, or a key
		v.Data = newForm(f).values
	}
	return c.show(f, "problem", v)
}

// isFragment reports whether a script of a page asks for a part of it.
func isFragment(f *fiber.Ctx) bool { return f.Get("HX-Request") == "true" }

// mostPath is the longest path to which a sign-in leads back: it travels in a cookie.
const mostPath = 1024

// local returns a path of this server, or another one.
func local(path, otherwise string) string {
	u, err := url.Parse(path)
	isOurs := strings.HasPrefix(path, Path+"/") || strings.HasPrefix(path, "/asynqmon")
	if err != nil || len(path) > mostPath || u.IsAbs() || u.Host != "" || !isOurs || strings.Contains(path, `\`) {
		return otherwise
	}
	return path
}
