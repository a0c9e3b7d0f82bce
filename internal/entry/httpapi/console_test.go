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

// ended waits for the job that a page links to, and returns it.
func (b browser) ended(location string) fleet.Answer {
	b.s.T.Helper()
	at, err := url.Parse(location)
	servers.NoError(b.s.T, err)
	wantAnswer(b.s.T, "the page that follows", b.get(strings.TrimPrefix(location, "/console")), http.StatusOK, at.Query().Get("job")+`">its job</a>`)
	return b.s.Do(0, b.s.Operator, http.MethodGet, "/v1/jobs/"+at.Query().Get("job"), map[string]string{"Prefer": fleet.UntilFinal}, nil)
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
	wantAnswer(t, "a key of an app", nobody.post("/sign-in", "/key", s.App, "/operator", "Mina"), http.StatusForbidden, "the key of an app", `value="Mina"`)
	for to, leads := range map[string]string{"/console/campaigns": "/console/campaigns", "https://evil.example/": "/console/now", "//evil.example": "/console/now", `/console/\evil`: "/console/now"} {
		wantAnswer(t, to, nobody.post("/sign-in?to="+url.QueryEscape(to), "/key", s.Operator, "/operator", "Mina"), http.StatusSeeOther, valued{"Location", leads})
	}
	// A form whose session has ended is there again after the sign-in, and is sent by another press only.
	pause := "/campaigns/" + s.Campaign(3).String() + "/pause"
	waits := nobody.post(pause, "once", "of the form", "/reason", " <rain> ")
	mustAnswer(t, "a form without a session", waits, http.StatusUnauthorized, `action="/console/sign-in?to=`, `name="once" value="of the form"`)
	wrong := submit(nobody, "/sign-in", formOf(waits, "/key", "tp_wrong", "/operator", "Mina"))
	mustAnswer(t, "a wrong key", wrong, http.StatusUnauthorized, without("tp_wrong"))
	again := submit(nobody, "/sign-in", formOf(wrong, "/key", s.Operator, "/operator", "Mina"))
	mustAnswer(t, "the form again", again, http.StatusOK, `action="/console`+pause+`"`, "&lt;rain&gt;", having("Set-Cookie"), without(s.Operator))
	wantEqual(t, "changes", count(s, `SELECT count(*) FROM audit_trail WHERE operation = 'pauseCampaign' AND target = $1`, strings.Split(pause, "/")[2]), 0)
	sent := formOf(again)
	wantEqual(t, "its key and its reason", sent["once"]+sent["/reason"], "of the form <rain> ")
	wantAnswer(t, "sent", submit(signIn(s), pause, sent), http.StatusSeeOther)
	wantAnswer(t, "a page with a session", signIn(s).get("/now"), http.StatusOK, "Mina", valued{"Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"})
}

// Behind a proxy that is trusted, https is what it says, and the address is the one that it has added. Another proxy is no browser of this machine.
func TestASessionIsForHTTPSOrForThisMachine(t *testing.T) {
	t.Parallel()
	untrusting := fleet.Shared(t, quiet)
	s := fleet.Shared(t, quiet).With("TRIPRIZE_API_TRUSTED_PROXIES=127.0.0.0/8", "TRIPRIZE_LIMITS_ADDRESS_RATE=1", "TRIPRIZE_LIMITS_ADDRESS_BURST=5")
	key := s.Operator
	signIn := func(s *fleet.System, header ...string) fleet.Answer {
		form := url.Values{"/key": {key}, "/operator": {"Mina"}}.Encode()
		return browser{s: s}.send(http.MethodPost, "/sign-in", form, append(header, "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")...)
	}
	wantAnswer(t, "http behind the proxy", signIn(s, "X-Forwarded-For", "192.0.2.7", "X-Forwarded-Proto", "http"), http.StatusForbidden, without("Try again</button>"))
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "Via", "X-Real-IP", "true-client-ip"} {
		wantAnswer(t, "a proxy that is not trusted: "+name, signIn(untrusting, name, "https"), http.StatusForbidden)
	}
	for proto, want := range map[string]int{"HTTPS , http": http.StatusSeeOther, "http, https": http.StatusForbidden, "": http.StatusForbidden} {
		wantAnswer(t, "two proxies: "+proto, signIn(s, "X-Forwarded-For", "192.0.2.9", "X-Forwarded-Proto", proto), want)
	}
	a := signIn(s, "X-Forwarded-For", "192.0.2.7", "X-Forwarded-Proto", "https")
	mustAnswer(t, "https", a, http.StatusSeeOther)
	cookie, rest, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
	if !strings.HasPrefix(cookie, "__Host-triprize=") || rest != " Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Lax" {
		t.Error(a.Header.Get("Set-Cookie"))
	}
	id := s.Campaign(3).String()
	wantAnswer(t, "a command", browser{s, cookie}.send(http.MethodPost, "/campaigns/"+id+"/pause", "%2Freason=rain", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin",
		"X-Forwarded-Proto", "https", "X-Forwarded-For", "6.6.6.6, 192.0.2.7"), http.StatusSeeOther)
	wantEqual(t, "its address", servers.Value[string](t, s.DB, `SELECT address FROM audit_trail WHERE target = $1`, id), "192.0.2.7")
	key = "wrong"
	guess := func(from string) fleet.Answer {
		return signIn(s, "X-Forwarded-For", from, "X-Forwarded-Proto", "https")
	}
	last := guess("192.0.2.7")
	for i := 0; last.Status == http.StatusUnauthorized && i < 2000; i++ { // more than come back in the time
		last = guess("192.0.2.7")
	}
	wantAnswer(t, "one who guesses", last, http.StatusTooManyRequests, having("Retry-After"))
	wantAnswer(t, "another behind the same proxy", guess("192.0.2.8"), http.StatusUnauthorized)
	refused := func(header ...string) fleet.Answer { // neither name nor key
		return browser{s: s}.send(http.MethodPost, "/sign-in", "", append(header, "Content-Type", "application/x-www-form-urlencoded", "X-Forwarded-For", "192.0.2.9")...)
	}
	last = refused("X-Forwarded-Proto", "https")
	for i := 0; last.Status != http.StatusTooManyRequests && i < 2000; i++ {
		last = refused("X-Forwarded-Proto", "https")
	}
	wantAnswer(t, "refused too often", last, http.StatusTooManyRequests)
	last = refused("X-Forwarded-Proto", "http")
	for i := 0; last.Header.Get("Retry-After") == "" && i < 2000; i++ {
		last = refused("X-Forwarded-Proto", "http")
	}
	wantAnswer(t, "in the clear, which is charged and says what to set", last, http.StatusForbidden, "api.trusted_proxies", having("Retry-After"))
	wantAnswer(t, "the page", browser{s: s}.get("/sign-in", "X-Forwarded-Proto", "https", "X-Forwarded-For", "192.0.2.9"), http.StatusOK, "Operator key")
	key = s.Operator
	wantAnswer(t, "who has a key", guess("192.0.2.7"), http.StatusSeeOther)
}
