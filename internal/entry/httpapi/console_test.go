package httpapi_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// browser is an operator at the console of the first api, with a browser that runs no scripts and follows no redirect.
type browser struct {
	s      *fleet.System
	cookie string // empty: nobody is signed in
}

var unfollowing = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// signIn signs the operator of a system in.
func signIn(s *fleet.System) browser {
	s.T.Helper()
	a := browser{s: s}.post("/sign-in", "/key", s.Operator, "/operator", "Mina")
	mustAnswer(s.T, "signing in", a, http.StatusSeeOther)
	cookie, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
	return browser{s, cookie}
}

// get asks for a page of the console, such as /now. header are names and values.
func (b browser) get(page string, header ...string) fleet.Answer {
	b.s.T.Helper()
	return b.send(http.MethodGet, page, "", header...)
}

// live asks for the part of a page that moves.
func (b browser) live(page string) fleet.Answer {
	b.s.T.Helper()
	return b.get(page+"/live", "HX-Request", "true")
}

// post sends a form. fields are names and values.
func (b browser) post(page string, fields ...string) fleet.Answer {
	b.s.T.Helper()
	form := make(url.Values)
	for field := range slices.Chunk(fields, 2) {
		form.Add(field[0], field[1])
	}
	return b.send(http.MethodPost, page, form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
}

func (b browser) send(method, page, body string, header ...string) (a fleet.Answer) {
	b.s.T.Helper()
	request, err := http.NewRequestWithContext(b.s.T.Context(), method, b.s.URLs[0]+"/console"+page, strings.NewReader(body))
	servers.NoError(b.s.T, err)
	for pair := range slices.Chunk(header, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	if b.cookie != "" {
		request.Header.Set("Cookie", b.cookie)
	}
	response, err := unfollowing.Do(request)
	servers.NoError(b.s.T, err)
	defer func() { _ = response.Body.Close() }()
	a = fleet.Answer{Status: response.StatusCode, Header: response.Header}
	a.Body, a.Err = io.ReadAll(response.Body)
	servers.NoError(b.s.T, a.Err)
	return a
}

func TestTheConsoleLeadsToTheSignInPageAndBack(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	nobody := browser{s: s}
	wantAnswer(t, "a page", nobody.get("/now"), http.StatusSeeOther, valued{"Location", "/console/sign-in?to=%2Fconsole%2Fnow"})
	wantAnswer(t, "a page as JSON", nobody.get("/now", "Accept", "application/json"), http.StatusUnauthorized)
	wantAnswer(t, "a key of an app", nobody.post("/sign-in", "/key", s.App, "/operator", "Mina"), http.StatusForbidden, "the key of an app")
	wantAnswer(t, "back", nobody.post("/sign-in?to=/console/campaigns", "/key", s.Operator, "/operator", "Mina"), http.StatusSeeOther, valued{"Location", "/console/campaigns"})
	wantAnswer(t, "a page with a session", signIn(s).get("/now"), http.StatusOK, "Mina")
}
