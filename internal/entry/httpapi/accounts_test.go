package httpapi_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"triprize/internal/key"
	"triprize/internal/testkit/accounts"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// withAccounts gives a test two apis behind one address, and the provider of their accounts.
func withAccounts(t *testing.T, env ...string) (*fleet.System, *accounts.Provider) {
	t.Helper()
	at := accounts.New(t)
	env = append(env, "TRIPRIZE_CONSOLE_OIDC_ISSUER="+at.URL, "TRIPRIZE_CONSOLE_OIDC_CLIENT_ID="+accounts.ClientID, "TRIPRIZE_CONSOLE_OIDC_CLIENT_SECRET="+accounts.Secret,
		"TRIPRIZE_CONSOLE_OIDC_ROLES_OPERATOR=ops,admins", "TRIPRIZE_CONSOLE_OIDC_ROLES_APPROVER=finance", "TRIPRIZE_CONSOLE_OIDC_ROLES_VIEWER=support", "TRIPRIZE_API_ASYNQMON_READ_ONLY=false")
	s := fleet.Shared(t, quiet).With(env...)
	s.RunAPI(env...)
	return s, at
}

// signedInAs makes somebody signed in at the provider.
func signedInAs(at *accounts.Provider, subject string, groups ...string) {
	at.Do(func(p *accounts.Provider) {
		p.Person = jwt.MapClaims{"sub": subject, "email": subject + "@example.com", "email_verified": true, "groups": groups}
	})
}

// visitor is a browser that keeps cookies, runs no scripts and follows no redirect.
type visitor struct {
	s   *fleet.System
	jar map[string]string
}

// send sends a request to the n-th api, at the address of the first.
func (v visitor) send(n int, method, path string, form url.Values, header ...string) (a fleet.Answer) {
	v.s.T.Helper()
	request, err := http.NewRequestWithContext(v.s.T.Context(), method, v.s.URLs[n]+path, strings.NewReader(form.Encode()))
	servers.NoError(v.s.T, err)
	request.Host = strings.TrimPrefix(v.s.URLs[0], "http://")
	if method == http.MethodPost {
		header = append([]string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}, header...)
	}
	for pair := range slices.Chunk(header, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	for name, value := range v.jar {
		request.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	response, err := unfollowing.Do(request)
	servers.NoError(v.s.T, err)
	defer func() { _ = response.Body.Close() }()
	for _, c := range response.Cookies() {
		if v.jar[c.Name] = c.Value; c.MaxAge < 0 {
			delete(v.jar, c.Name)
		}
	}
	a = fleet.Answer{Status: response.StatusCode, Header: response.Header}
	a.Body, a.Err = io.ReadAll(response.Body)
	servers.NoError(v.s.T, a.Err)
	return a
}

func (v visitor) get(path string, header ...string) fleet.Answer {
	v.s.T.Helper()
	return v.send(0, http.MethodGet, path, nil, header...)
}

// post sends a form; fields are names and values.
func (v visitor) post(path string, fields ...string) fleet.Answer {
	v.s.T.Helper()
	form := make(url.Values)
	for field := range slices.Chunk(fields, 2) {
		form.Add(field[0], field[1])
	}
	return v.send(0, http.MethodPost, path, form)
}

// begin begins a sign-in, visits the provider, and returns the callback to which it leads.
func (v visitor) begin(path string) (callback string) {
	v.s.T.Helper()
	begun := v.get(path)
	mustAnswer(v.s.T, path, begun, http.StatusSeeOther)
	response, err := unfollowing.Get(begun.Header.Get("Location")) //nolint:noctx // on this machine
	servers.NoError(v.s.T, err)
	servers.NoError(v.s.T, response.Body.Close())
	back, err := response.Location()
	servers.NoError(v.s.T, err)
	return back.RequestURI()
}

// signInByAccount returns a browser in which who is signed in at the provider has a session.
func signInByAccount(s *fleet.System) visitor {
	s.T.Helper()
	v := visitor{s, make(map[string]string)}
	mustAnswer(s.T, "the callback", v.get(v.begin("/console/sign-in/oidc?to=/console/trail")), http.StatusSeeOther, valued{"Location", "/console/trail"})
	if v.jar["triprize-console"] == "" || len(v.jar) != 1 {
		s.T.Fatal(v.jar)
	}
	return v
}

func TestAPersonSignsInActsAndSignsOut(t *testing.T) {
	t.Parallel()
	s, at := withAccounts(t)
	signedInAs(at, "mina", "ops")
	v := visitor{s, make(map[string]string)}
	wantAnswer(t, "a page", v.get("/console/now"), 303, valued{"Location", "/console/sign-in?to=%2Fconsole%2Fnow"})
	wantAnswer(t, "the sign-in page", v.get("/console/sign-in?to=%2Fconsole%2Ftrail"), 200, `href="/console/sign-in/oidc?to=%2Fconsole%2Ftrail"`, at.URL, without("<form"))
	wantAnswer(t, "a key", v.post("/console/sign-in", "/key", s.Operator, "/operator", "Mina"), 403, without(s.Operator))
	wantAnswer(t, "a key at asynqmon", v.get("/asynqmon", "Authorization", basic(s.Operator)), 303, valued{"Location", "/console/sign-in?to=%2Fasynqmon"})
	begun := v.get("/console/sign-in/oidc?to=https://evil.example/")
	sent, err := url.Parse(begun.Header.Get("Location"))
	servers.NoError(t, err)
	q := sent.Query()
	for name, want := range map[string]string{"scope": "openid email profile", "redirect_uri": s.URLs[0] + "/console/sign-in/callback", "code_challenge_method": "S256", "prompt": ""} {
		wantEqual(t, name, q.Get(name), want)
	}
	if cookie := begun.Header.Get("Set-Cookie"); !strings.HasSuffix(cookie, "; Path=/; Max-Age=600; HttpOnly; SameSite=Lax") || strings.Contains(cookie, q.Get("state")) || strings.Contains(cookie, q.Get("nonce")) {
		t.Error(cookie)
	}
	callback := v.begin("/console/sign-in/oidc?to=//evil.example")
	mustAnswer(t, "the callback at another api", v.send(1, http.MethodGet, callback, nil), 303, valued{"Location", "/console/now"})
	first := visitor{s, maps.Clone(v.jar)}
	wantAnswer(t, "a page of a person", v.get("/console/now"), 200, "mina@example.com", ">Keys</a>")

	mustAnswer(t, "once more", v.get(v.begin("/console/sign-in/oidc")), 303)
	if v.jar["triprize-console"] == first.jar["triprize-console"] {
		t.Error("who has known the cookie before the sign-in has the session after it")
	}
	wantAnswer(t, "the session before it", first.get("/console/now"), 303)

	campaign := s.Campaign(3).String()
	wantAnswer(t, "a command", v.post("/console/campaigns/"+campaign+"/pause", "/reason", "rain"), 303)
	ended := v.post("/console/campaigns/"+campaign+"/cancel", "/reason", "rain", "typed", s.CampaignNow(uuid.MustParse(campaign)).Name)
	mustAnswer(t, "a command that becomes a job", ended, 303)
	job := regexp.MustCompile(`job=([0-9a-f-]{36})`).FindStringSubmatch(ended.Header.Get("Location"))
	wantAnswer(t, "its job", v.get("/console/jobs/"+job[1]), 200)
	once := servers.Value[string](t, s.DB, `SELECT idempotency_key FROM jobs WHERE id = $1`, job[1])
	wantAnswer(t, "its job, by the key of the form", s.Do(0, s.Operator, http.MethodGet, "/v1/jobs?idempotency_key="+once, nil, nil), 200, job[1])
	wantAnswer(t, "its page, by the key of the form", v.get("/console/find?q="+once), 303, valued{"Location", "/console/jobs/" + job[1]})
	other := s.Campaign(3).String()
	mustAnswer(t, "by a key, with a name", s.Do(0, s.Operator, http.MethodPatch, "/v1/campaigns/"+other, map[string]string{"Triprize-Operator": "mina@example.com"}, fleet.Fields{"name": "B"}), 200)
	row := func(target string) fleet.Answer {
		return s.Do(0, s.Operator, http.MethodGet, "/v1/audit-trail?target="+target, nil, nil)
	}
	wantAnswer(t, "the trail", row(campaign), 200, `"operator":"mina@example.com","verified":true,"issuer":"`+at.URL+`","subject":"mina","email":"mina@example.com","client":"oidc","key_prefix":null`, `"operation":"cancelCampaign"`)
	wantAnswer(t, "the trail of a claim", row(other), 200, `"operator":"mina@example.com","verified":false,"issuer":null,"subject":null,"email":null`)
	wantAnswer(t, "its page", v.get("/console/trail?target="+campaign), 200, "(account <bdi>mina</bdi> at <bdi>"+at.URL)
	wantAnswer(t, "its page of a claim", v.get("/console/trail?target="+other), 200, "(not verified)")
	wantAnswer(t, "the cookie at the API", v.get("/v1/campaigns"), 401)

	wantAnswer(t, "a sign-out by another site", v.send(0, http.MethodPost, "/console/sign-out", nil, "Sec-Fetch-Site", "cross-site"), 403)
	wantAnswer(t, "a sign-out by a link", v.get("/console/sign-out"), 405)
	elsewhere := visitor{s, maps.Clone(v.jar)}
	out := at.URL + "/logout?client_id=triprize&post_logout_redirect_uri=" + url.QueryEscape(s.URLs[0]+"/console/sign-in")
	wantAnswer(t, "a sign-out", v.post("/console/sign-out"), 200, valued{"Refresh", "0; url=" + out}, strings.ReplaceAll(out, "&", "&amp;"))
	wantAnswer(t, "after it", elsewhere.get("/console/now"), 303, valued{"Location", "/console/sign-in?to=%2Fconsole%2Fnow"})
	v = signInByAccount(s)
	at.Do(func(p *accounts.Provider) { p.Answer["/.well-known/openid-configuration"] = http.NotFound })
	wantAnswer(t, "a sign-out while the provider is away", v.send(1, http.MethodPost, "/console/sign-out", nil), 200) // it has discovered
	s.RunAPI("TRIPRIZE_CONSOLE_OIDC_ISSUER="+at.URL, "TRIPRIZE_CONSOLE_OIDC_CLIENT_ID=x", "TRIPRIZE_CONSOLE_OIDC_ROLES_OPERATOR=ops")
	wantAnswer(t, "at an api that has not", signInByAccount(s).send(2, http.MethodPost, "/console/sign-out", nil), 303, valued{"Location", "/console/sign-in"})
}

// Who only reads sees every page but that of keys, and is led to no form; its forms are refused before they are read.
func TestARoleSeesItsPagesAndHasItsCommands(t *testing.T) {
	t.Parallel()
	s, at := withAccounts(t, "TRIPRIZE_CONSOLE_SIGN_IN=both")
	campaign := "/console/campaigns/" + s.Campaign(3).String()
	endpoint := "/console/webhooks/" + endpointOf(s, asked(s, s.App, endpointsPath, "e", endpointBody("*")), 201).ID.String()
	wallet := "/console/wallets/" + strings.TrimPrefix(s.Wallet(s.User("mina"), 5), "/v1/wallets/")
	pages := []string{"/console/now", "/console/campaigns", campaign, campaign + "/live", "/console/find?q=nothing", "/console/failed", "/console/waiting", "/console/webhooks", endpoint, wallet, "/console/trail?operation=revokeKey"}
	of := make(map[string]visitor)
	for name, groups := range map[string][]string{"operator": {"admins"}, "viewer and operator": {"support", "ops"}, "approver": {"finance"}, "viewer": {"support"}} {
		signedInAs(at, name, groups...)
		of[name] = signInByAccount(s)
	}
	of["viewer by key"] = visitor{s, make(map[string]string)}
	mustAnswer(t, "a viewer's key", of["viewer by key"].post("/console/sign-in", "/key", s.NewKeyOf(key.Viewer, "bi"), "/operator", "Mina"), 303)
	links := regexp.MustCompile(`(?:href|action)="(/console/[^"#]*)"`)
	pause := "/asynqmon/api/queues/" + s.Settings.Redis.Namespace + "-purchase"
	for _, name := range slices.Sorted(maps.Keys(of)) { // an operator is before viewers who are shown the same
		v, acts := of[name], strings.Contains(name, "operator")
		forms := 0
		for _, path := range pages {
			page := v.get(path, "HX-Request", map[bool]string{true: "true"}[strings.HasSuffix(path, "/live")])
			mustAnswer(t, name+" at "+path, page, 200)
			for _, found := range links.FindAllSubmatch(page.Body, -1) {
				to := strings.ReplaceAll(string(found[1]), "&amp;", "&")
				if to == "/console/sign-out" || strings.HasPrefix(to, "/console/static/") || strings.HasPrefix(to, "/console/approvals/") || strings.HasSuffix(to, ".csv") {
					continue
				}
				linked := v.get(to)
				forms += bytes.Count(linked.Body, []byte(`<form class="action" method="post"`))
				if linked.Status == http.StatusForbidden {
					t.Errorf("%s is led from %s to %s, which is refused", name, path, to)
				}
			}
		}
		if acts != (forms > 0) {
			t.Errorf("%s is led to %d forms", name, forms)
		}
		status := map[bool]int{true: 200, false: 403}[acts]
		wantAnswer(t, name+" at Keys", v.get("/console/keys"), status)
		wantEqual(t, name+" is shown the link of Keys", fleet.Contains(v.get("/console/now").Body, ">Keys</a>"), acts)
		wantAnswer(t, name+" finds a key", v.get("/console/find?q="+prefixOf(s.App)), map[bool]int{true: 303, false: 200}[acts]) // to its page, or nothing
		for _, path := range []string{campaign + "/pause", endpoint + "/disable", wallet + "/credit", "/console/sweeps/old-records", "/console/campaigns/new", "/console/keys/" + prefixOf(s.App) + "/revoke"} {
			wantAnswer(t, name+" opens "+path, v.get(path), status)
			if !acts {
				wantAnswer(t, name+" sends "+path, v.send(0, http.MethodPost, path, nil, "Content-Type", "unread/unread"), 403, "this needs the role operator")
			}
		}
		wantAnswer(t, name+" at asynqmon", v.get("/asynqmon"), 200)
		wantAnswer(t, name+" pauses a queue", v.post(pause+":pause"), map[bool]int{true: 204, false: 405}[acts])
		wantAnswer(t, name+" resumes it", v.post(pause+":resume"), map[bool]int{true: 204, false: 405}[acts])
	}
	signedInAs(at, "otto", "guests", "<b>")
	v := visitor{s, make(map[string]string)}
	wantAnswer(t, "who has no role", v.get(v.begin("/console/sign-in/oidc")), 403, "otto@example.com", "groups", "&#34;guests&#34;", without("<b>"))
	wantEqual(t, "its session", len(v.jar), 0)
}

// An hour after the provider has said the roles of a person, they are read anew.
func TestRolesAreReadAnewAfterAnHour(t *testing.T) {
	t.Parallel()
	s, at := withAccounts(t)
	signedInAs(at, "mina", "ops")
	pause := "/console/campaigns/" + s.Campaign(3).String() + "/pause"
	aged := func(by string) visitor { // no api has asked for the session yet
		v := signInByAccount(s)
		exec(s, `UPDATE console_sessions SET checked_at = clock_timestamp() - $2::interval WHERE issuer = $1`, at.URL, by)
		return v
	}
	const renewal = "/console/sign-in/oidc?silent=1&to=%2Fconsole%2Fcampaigns%3Fstate%3Dactive"
	v := aged("59 minutes")
	at.Do(func(p *accounts.Provider) { p.Answer["/.well-known/openid-configuration"] = http.NotFound })
	wantAnswer(t, "within the hour, while the provider is away", v.get("/console/campaigns"), 200)
	at.Do(func(p *accounts.Provider) { delete(p.Answer, "/.well-known/openid-configuration") })

	v = aged("61 minutes")
	cookie := v.jar["triprize-console"]
	wantAnswer(t, "a page", v.get("/console/campaigns?state=active"), 303, valued{"Location", renewal})
	wantAnswer(t, "a fragment", v.get("/console/campaigns/live", "HX-Request", "true", "Referer", s.URLs[0]+"/console/campaigns?state=active"), 401, valued{"HX-Redirect", renewal}, valued{"Location", ""})
	wantAnswer(t, "asynqmon", v.get("/asynqmon/queues"), 303, valued{"Location", "/console/sign-in/oidc?silent=1&to=%2Fasynqmon%2Fqueues"})
	wantAnswer(t, "its data", v.get("/asynqmon/api/queues"), 401)
	wantAnswer(t, "without asking", v.get(renewal), 303)
	one, two := v.begin(renewal), v.begin(strings.Replace(renewal, "campaigns%3Fstate%3Dactive", "now", 1)) // two tabs at once
	wantAnswer(t, "the first tab", v.send(1, http.MethodGet, one, nil), 303, valued{"Location", "/console/campaigns?state=active"})
	wantAnswer(t, "the second tab", v.get(two), 303, valued{"Location", "/console/now"})
	wantAnswer(t, "after it", v.get("/console/now"), 200)
	wantEqual(t, "its cookie", v.jar["triprize-console"], cookie)

	wantAnswer(t, "a form within ten minutes more", aged("69 minutes").post(pause, "/reason", "rain"), 303)
	exec(s, `UPDATE campaigns SET paused_at = NULL WHERE id = $1`, strings.Split(pause, "/")[3])
	v = aged("71 minutes")
	waits := v.post(pause, "once", "of the form", "/reason", " <rain> ")
	mustAnswer(t, "a form after that", waits, 401, `href="/console/sign-in/oidc`, `action="`+pause+`"`, "Nothing was done", `name="once" value="of the form"`)
	mustAnswer(t, "the other tab", v.get(v.begin("/console/sign-in/oidc")), 303)
	var fields []string
	for name, value := range formOf(waits) {
		fields = append(fields, name, value)
	}
	again := v.post(pause, fields...)
	wantAnswer(t, "the form again", again, 200, "&lt;rain&gt;", `name="once" value="of the form"`)
	wantEqual(t, "pauses", count(s, `SELECT count(*) FROM audit_trail WHERE operation = 'pauseCampaign' AND target = $1`, strings.Split(pause, "/")[3]), 1)

	v = aged("61 minutes")
	signedInAs(at, "mina", "support")
	mustAnswer(t, "who has lost a role", v.get(v.begin(renewal)), 303)
	wantAnswer(t, "a command of it", v.post(pause, "/reason", "rain"), 403)
	signedInAs(at, "mina", "ops")
	v = aged("61 minutes")
	signedInAs(at, "mina")
	stale := visitor{s, maps.Clone(v.jar)}
	wantAnswer(t, "who has lost all", v.get(v.begin(renewal)), 403)
	wantAnswer(t, "its session", stale.get("/console/now"), 303, valued{"Location", "/console/sign-in?to=%2Fconsole%2Fnow"})
	signedInAs(at, "mina", "ops")
	v = aged("61 minutes")
	at.Do(func(p *accounts.Provider) { p.Person = nil })
	wantAnswer(t, "who is removed", v.get(v.begin(renewal)), 303, valued{"Location", "/console/sign-in?to=%2Fconsole%2Fcampaigns%3Fstate%3Dactive"})
	wantAnswer(t, "a page of it", v.get("/console/now"), 303, valued{"Location", "/console/sign-in/oidc?silent=1&to=%2Fconsole%2Fnow"})
}

// Package oidc has the attacks on the protocol; here are those from outside.
func TestNobodySignsInByAnothersSignIn(t *testing.T) {
	t.Parallel()
	s, at := withAccounts(t)
	signedInAs(at, "mina", "ops")
	victim := visitor{s, make(map[string]string)}
	theirs := victim.begin("/console/sign-in/oidc")
	for name, c := range map[string]struct {
		change func(v visitor, query url.Values)
		token  func(claims jwt.MapClaims, header map[string]any)
		sign   func(*jwt.Token) (string, error)
		answer http.HandlerFunc
		status int
	}{
		"another's callback": {status: 403, change: func(_ visitor, query url.Values) {
			other, _ := url.Parse(theirs)
			clear(query)
			maps.Copy(query, other.Query())
		}},
		"another's code":    {status: 403, change: func(_ visitor, query url.Values) { query.Set("code", strings.Split(theirs, "code=")[1][:26]) }},
		"another's cookies": {status: 403, change: func(v visitor, _ url.Values) { clear(v.jar); maps.Copy(v.jar, victim.jar) }},
		"no cookie":         {status: 403, change: func(v visitor, _ url.Values) { clear(v.jar) }},
		"a cookie of its own making": {status: 403, change: func(v visitor, _ url.Values) {
			for name := range v.jar {
				v.jar[name] = "eyJzdGF0ZSI6IngifQ"
			}
		}},
		"another issuer": {status: 403, change: func(_ visitor, query url.Values) { query.Set("iss", "https://evil.example") }},
		"replayed": {status: 403, change: func(v visitor, query url.Values) {
			again := visitor{v.s, maps.Clone(v.jar)}
			mustAnswer(t, "the first time", again.get("/console/sign-in/callback?"+query.Encode()), 303)
		}},
		"an error with words": {status: 403, change: func(_ visitor, query url.Values) { query.Set("error", "<b>secret words\n") }},
		"alg none": {status: 403, sign: func(t *jwt.Token) (string, error) {
			return jwt.NewWithClaims(jwt.SigningMethodNone, t.Claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
		}},
		"another client": {status: 403, token: func(claims jwt.MapClaims, _ map[string]any) { claims["aud"] = "shop" }},
		"fails": {status: 503, answer: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "secret words", http.StatusInternalServerError)
		}},
		"floods": {status: 503, answer: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("secret words"), 100_000))
		}},
		"redirects": {status: 503, answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) }},
		"hangs":     {status: 503, answer: func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }},
	} {
		at.Do(func(p *accounts.Provider) { p.Token, p.Sign, p.Answer["/token"] = c.token, c.sign, c.answer })
		v := visitor{s, make(map[string]string)}
		callback, err := url.Parse(v.begin("/console/sign-in/oidc"))
		servers.NoError(t, err)
		query := callback.Query()
		if c.change != nil {
			c.change(v, query)
		}
		began := time.Now()
		a := v.get(callback.Path + "?" + query.Encode())
		wantAnswer(t, name, a, c.status, `href="/console/sign-in">Try again`, without("secret words"), without("<b>"))
		if v.jar["triprize-console"] != "" || time.Since(began) > 7*time.Second {
			t.Errorf("%s, after %s: %v", name, time.Since(began), v.jar)
		}
	}
	at.Do(func(p *accounts.Provider) { p.Token, p.Sign, p.Answer["/token"] = nil, nil, nil })
	mustAnswer(t, "who begins anew", victim.get(victim.begin("/console/sign-in/oidc")), 303)
	v := visitor{s, make(map[string]string)}
	for range 20 { // a page of another site can begin sign-ins, too
		v.get("/console/sign-in/oidc")
	}
	if len(v.jar) > 8 {
		t.Errorf("a browser holds %d sign-ins", len(v.jar))
	}
}

// Beside accounts, a key is for emergencies.
func TestASignInByKeyBesideAccountsIsRecordedAndCounted(t *testing.T) {
	t.Parallel()
	oidc := []string{"TRIPRIZE_CONSOLE_OIDC_ISSUER=http://127.0.0.1:1", "TRIPRIZE_CONSOLE_OIDC_CLIENT_ID=x", "TRIPRIZE_CONSOLE_OIDC_ROLES_OPERATOR=ops"}
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: slices.Concat(everyday, oidc, []string{"TRIPRIZE_CONSOLE_SIGN_IN=both"})})
	s.RunAPI(append(oidc, "TRIPRIZE_CONSOLE_SIGN_IN=key")...)
	counted := func(n int, want float64) {
		t.Helper()
		wantEqual(t, "what is counted", s.Metric(n, "triprize_console_sign_ins_by_key_total"), want)
		wantEqual(t, "what is recorded", count(s, `SELECT count(*) FROM audit_trail WHERE operation = 'signInByKey'`), 1)
	}
	b := signIn(s)
	counted(0, 1)
	wantAnswer(t, "its row", b.get("/trail?operation=signInByKey"), 200, "Mina", "(not verified)", "127.0.0.1", `target=`+prefixOf(s.Operator))
	wantAnswer(t, "a wrong key", b.post("/sign-in", "/key", "tp_wrong", "/operator", "Mina"), 401)
	counted(0, 1)
	wantAnswer(t, "its key at asynqmon", s.Do(0, "", http.MethodGet, "/asynqmon/api/queues", map[string]string{"Authorization": basic(s.Operator)}, nil), 401)
	v := visitor{s, make(map[string]string)}
	wantAnswer(t, "accounts where only keys sign in", v.send(1, http.MethodGet, "/console/sign-in/oidc", nil), 303, valued{"Location", "/console/sign-in?to=%2Fconsole%2Fsign-in%2Foidc"})
	wantAnswer(t, "a key there", v.send(1, http.MethodPost, "/console/sign-in", url.Values{"/key": {s.Operator}, "/operator": {"Mina"}}), 303)
	counted(1, 0)
	sessions := count(s, `SELECT count(*) FROM console_sessions`)
	exec(s, `ALTER TABLE audit_trail ADD CHECK (false) NOT VALID`)
	wantAnswer(t, "a sign-in whose row cannot be written", b.post("/sign-in", "/key", s.Operator, "/operator", "Mina"), 503, without("Set-Cookie"))
	wantEqual(t, "sessions", count(s, `SELECT count(*) FROM console_sessions`), sessions)
}

// A renewal renews the session that there is, and opens none: it may have ended meanwhile, and nobody was asked.
func TestARenewalOpensNoSession(t *testing.T) {
	t.Parallel()
	s, at := withAccounts(t)
	signedInAs(at, "ada", "ops")
	v := visitor{s, make(map[string]string)}
	wantAnswer(t, "the callback", v.get(v.begin("/console/sign-in/oidc?silent=1&to=/console/campaigns")), 303, valued{"Location", "/console/sign-in?to=%2Fconsole%2Fcampaigns"})
	wantEqual(t, "cookies", len(v.jar), 0)
	wantEqual(t, "sessions", count(s, `SELECT count(*) FROM console_sessions WHERE issuer = $1`, at.URL), 0)
}

// Whoever begins and ends sign-ins at will is refused by the limit of its address before the provider is asked.
func TestAFloodOfSignInsDoesNotReachTheProvider(t *testing.T) {
	t.Parallel()
	s, at := withAccounts(t, "TRIPRIZE_LIMITS_ADDRESS_RATE=1", "TRIPRIZE_LIMITS_ADDRESS_BURST=5")
	signedInAs(at, "ada", "ops")
	v := visitor{s, make(map[string]string)}
	callback, err := url.Parse(v.begin("/console/sign-in/oidc"))
	servers.NoError(t, err)
	query := callback.Query()
	query.Set("code", "invented")
	began := time.Now()
	fleet.AtOnce(100, func(int) fleet.Answer {
		one := visitor{s, maps.Clone(v.jar)}
		return one.get(callback.Path + "?" + query.Encode())
	})
	if asked, most := at.Count("/token"), 5+int(time.Since(began).Seconds())+2; asked > most {
		t.Errorf("the provider was asked %d times, and at most %d are left by the limit", asked, most)
	}
}
