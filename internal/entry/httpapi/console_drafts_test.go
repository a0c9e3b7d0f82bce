package httpapi_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
)

var inputs = regexp.MustCompile(`<input(?: type="hidden")? name="([^"]+)"(?: type="[^"]*")?(?: dir="auto")?(?: value="([^"]*)")?|<textarea name="([^"]+)"[^>]*>([^<]*)|<select name="([^"]+)">(?:<option>[^<]*</option>)*(?:<option selected>([^<]*))?`)

// formOf returns what a browser sends of the form on a page, after changes: names and values.
func formOf(page fleet.Answer, changes ...string) map[string]string {
	fields := make(map[string]string)
	for _, m := range inputs.FindAllSubmatch(page.Body, -1) {
		fields[string(m[1])+string(m[3])+string(m[5])] = html.UnescapeString(string(m[2]) + string(m[4]) + string(m[6]))
	}
	for i := 0; i < len(changes); i += 2 {
		fields[changes[i]] = changes[i+1]
	}
	return fields
}

// with returns fields with one more.
func with(fields map[string]string, name, value string) map[string]string {
	fields = maps.Clone(fields)
	fields[name] = value
	return fields
}

func submit(b browser, page string, fields map[string]string) fleet.Answer {
	b.s.T.Helper()
	var pairs []string
	for name, value := range fields {
		pairs = append(pairs, name, value)
	}
	return b.post(page, pairs...)
}

// fill opens a page and sends its form with changes.
func fill(b browser, page string, changes ...string) fleet.Answer {
	b.s.T.Helper()
	return submit(b, page, formOf(b.get(page), changes...))
}

// hall is a draft with two rows.
func hall(name string, changes ...string) []string {
	return append([]string{"/name", name, "/currency", "EUR", "/layers", "2 | Row A | 1500 | aisles 1 | Gold x1, Gold, big x1\n\n 3||700", "/sale_ends_at", "2130-01-02T03:04",
		"/policies/unsold", "draw", "/policies/beacon", "no", "/reason", "spring"}, changes...)
}

// created is the page of a campaign that a form has created.
func created(t *testing.T, a fleet.Answer) (page string) {
	t.Helper()
	mustAnswer(t, "creating", a, http.StatusSeeOther)
	page, done := strings.CutSuffix(strings.TrimPrefix(a.Header.Get("Location"), "/console"), "?done=1")
	if !done {
		t.Fatalf("it leads to %s", a.Header.Get("Location"))
	}
	return page
}

func TestADraftIsPreviewedCreatedOnceAndEdited(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	b, name := signIn(s), "Hall & "+uuid.NewString()
	read := func(page string) fleet.Answer { return s.Do(0, s.Operator, http.MethodGet, "/v1"+page, nil, nil) }
	form := formOf(b.get("/campaigns/new"), hall(name, "/purchase_limit", "2")...)
	wantAnswer(t, "the preview", submit(b, "/campaigns/new", with(form, "preview", "1")), 200, "5 in 2 layers", "51.00 EUR", "7.00 EUR to 15.00 EUR", "1 × <bdi>Gold, big", html.EscapeString(name))
	wantEqual(t, "campaigns after a preview", count(s, `SELECT count(*) FROM campaigns WHERE name = $1`, name), 0)
	page := created(t, submit(b, "/campaigns/new", form))
	wantEqual(t, "the page after the same form", created(t, submit(b, "/campaigns/new", form)), page)
	wantEqual(t, "campaigns of one form", count(s, `SELECT count(*) FROM campaigns WHERE name = $1`, name), 1)
	wantAnswer(t, "the campaign", read(page), 200, `"state":"pending"`, `"purchase_limit":2`, `"sale_ends_at":"2130-01-02T03:04:00Z"`, `"unsold":"draw"`,
		`"beacon":false`, `"label":"Row A"`, `"aisles":[1]`, `"price":1500`, `{"name":"Gold, big","count":1}`)

	edit := page + "/edit"
	form = formOf(b.get(edit), "/reason", "a better name", "/name", name+"!")
	wantEqual(t, "the layers in the form", form["/layers"], "2 | Row A | 1500 | aisles 1 | Gold x1, Gold, big x1\n3 |  | 700")
	patch := func(body fleet.Fields) {
		mustAnswer(t, "another operator", s.Do(0, s.Operator, http.MethodPatch, "/v1"+page, nil, body), 200)
	}
	patch(fleet.Fields{"purchase_limit": 3})
	wantAnswer(t, "the preview of an edit", submit(b, edit, with(form, "preview", "1")), 200, `action="/console`+edit+`"`, html.EscapeString(name)+"!", `name="was/name" value="`+html.EscapeString(name)+`"`)
	wantAnswer(t, "an edit", submit(b, edit, form), 303, valued{"Location", "/console" + page + "?done=1"})
	wantAnswer(t, "what another has changed stays", read(page), `"purchase_limit":3`, `!"`)
	wantAnswer(t, "an edit of nothing", fill(b, edit, "/reason", "none"), 400, "Nothing differs")

	wantAnswer(t, "a triangle", fill(b, edit, "/reason", "shape", "/base_length", "4", "/layers", "|Top|500|Gold x1\n||100", "/purchase_limit", "", "/policies/unsold", "stay", "/sale_ends_at", ""), 303)
	wantAnswer(t, "the triangle", read(page), `"base_length":4`, `"total":10`, `"purchase_limit":null`, `"sale_ends_at":null`, `"unsold":"stay"`, `"beacon":false`)
	fraction := fleet.Fields{"unsold": "draw", "cancellation_until": "2130-01-01T00:00:00.123456Z"}
	layers := []fleet.Fields{{"layer": 1, "positions": 3, "price": 7, "label": "A|B ¦ x2, ", "prizes": []fleet.Fields{{"name": "Cup x2, gold", "count": 1}}}}
	patch(fleet.Fields{"policies": fraction, "sale_ends_at": "2131-01-01T00:00:00.5Z", "layers": layers, "public_page": "embed", "embed_origins": []string{"https://a.example"}})
	form = formOf(b.get(edit), "/reason", "what was not typed", "/policies/unsold", "cancel")
	if _, has := form["/layers"]; has {
		t.Errorf("the form has layers that it cannot hold: %q", form["/layers"])
	}
	wantAnswer(t, "its preview", submit(b, edit, with(form, "preview", "1")), 200, "A|B ¦ x2, ")
	wantAnswer(t, "another policy", submit(b, edit, form), 303)
	wantAnswer(t, "the rest of it", read(page), `"unsold":"cancel"`, `"cancellation_until":"2130-01-01T00:00:00.123456Z"`, `"sale_ends_at":"2131-01-01T00:00:00.5Z"`, `"label":"A|B ¦ x2, "`, `"Cup x2, gold"`)
	patch(fleet.Fields{"layers": []fleet.Fields{{"layer": 1, "positions": 2, "price": 8}}})
	form = formOf(b.get(edit), "/reason", "late", "/layers", "3 | | 8")
	patch(fleet.Fields{"layers": []fleet.Fields{{"layer": 1, "positions": 4, "price": 8}}})
	wantAnswer(t, "layers that another has changed", submit(b, edit, form), 409, "have changed since")
	form = formOf(b.get(edit), "/reason", "shape", "/base_length", "", "/layers", "7 | | 100")
	for range 2 { // an answer may be lost
		wantAnswer(t, "a hall again", submit(b, edit, form), 303)
	}
	wantAnswer(t, "the hall", read(page), `"base_length":null`, `"total":7`)
}

func TestAWrongFieldOfADraftIsMarkedAndKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	b := signIn(s)
	for _, c := range []struct{ pointer, typed, says string }{
		{"/name", "", "is required"},
		{"/name", strings.Repeat("n", 201), ""},
		{"/currency", "yen", ""},
		{"/base_length", "x", "must be a whole number"},
		{"/base_length", "1", ""},
		{"/base_length", "1001", ""},
		{"/layers", "", "is required"},
		{"/layers", "2 | A | 100\n\nthree", "line 3 is not like"},
		{"/layers", "2 | A | 100 | Gold", "line 1 is not like"},
		{"/layers", "2 | A | 100\n| B | 100", "line 2 positions:"},
		{"/layers", "2 | A | 100\n\n2 | B | 0", "line 3 price:"},
		{"/layers", "2 | A | 100 | aisles 2", "line 1 aisles/0:"},
		{"/layers", "2 | A | 100 | Gold x3", "line 1 prizes/0/count:"},
		{"/purchase_limit", "0", "must be at least 1"},
		{"/sale_starts_at", "tomorrow", "must be a time"},
		{"/sale_ends_at", "1990-01-01T00:00", "must be in the years"},
		{"/policies/unsold", "burn", ""},
		{"/policies/cancellation_until", "1990-01-01T00:00", "must be in the years"},
		{"/reason", "", "is required"},
	} {
		t.Run(c.pointer+" "+c.says, func(t *testing.T) {
			sent := formOf(b.get("/campaigns/new"), hall("A hall", c.pointer, c.typed)...)
			a := submit(b, "/campaigns/new", sent)
			mustAnswer(t, "", a, 400)
			_, label, _ := strings.Cut(string(a.Body), ` name="`+c.pointer+`"`)
			label, _, _ = strings.Cut(label, "</label>")
			if _, fault, marked := strings.Cut(label, `<strong class="fault">`); !marked || !strings.Contains(fault, c.says) {
				t.Errorf("it says %s", label)
			}
			kept := formOf(a)
			for name, value := range sent {
				isSelect := strings.Contains(label, "<option>") && name == c.pointer // it has only what it offers
				if kept[name] != value && name != "once" && !isSelect {
					t.Errorf("%s has %q instead of %q", name, kept[name], value)
				}
			}
		})
	}
}

func TestEveryCommandAboutACampaignIsAForm(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	b, name := signIn(s), "Hall "+uuid.NewString()
	page := created(t, fill(b, "/campaigns/new", hall(name)...))
	id := uuid.MustParse(strings.TrimPrefix(page, "/campaigns/"))
	wantAnswer(t, "what is fixed by its publication", b.get(page+"/publish"), 200, "5 in 2 layers", "51.00 EUR", "unsold: draw")
	draft := formOf(b.get(page+"/cancel"), "typed", name, "/reason", "nothing is sold")
	for _, c := range []struct {
		name, field, value string
		status             int
		says               string
	}{
		{"publish", "", "", 303, "done=1"},
		{"publish", "", "", 409, "state-conflict"},
		{"pause", "", "", 303, "done=1"},
		{"resume", "", "", 303, "done=1"},
		{"block", "/positions", "1/1-2, 2/1", 303, "done=1"},
		{"block", "/positions", "1/2", 409, "is blocked"},
		{"block", "/positions", "2/2, 2/3-1", 400, "2/3-1:"},
		{"block", "/positions", "2/2-99", 400, "2/2-99:"},
		{"unblock", "/positions", "1/1-2\n2/1", 303, "done=1"},
		{"draw", "", "", 409, "not-sold-out"},
		{"round", "/signature", strings.Repeat("0f", 48), 409, "state-conflict"},
		{"round", "/signature", "0f", 400, `<strong class="fault">`},
		{"void", "typed", name, 409, "state-conflict"},
		{"void", "typed", "the hall", 400, "type exactly"},
		{"cancel", "typed", "", 400, "type exactly"},
	} {
		path := page + "/" + c.name
		form := formOf(b.get(path), c.field, c.value, "/reason", "")
		wantAnswer(t, c.name+" without a reason", submit(b, path, form), 400, "is required")
		form["/reason"] = "a test"
		wantAnswer(t, c.name+" without a session", submit(browser{s: s}, path, form), 401, "your session has ended", `name="/reason" value="a test"`)
		wantAnswer(t, c.name+" from another site", b.send(http.MethodPost, path, url.Values{"/reason": {"a test"}}.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "cross-site"), 403, without("Try again</button>"))
		a := submit(b, path, form)
		switch location := a.Header.Get("Location"); {
		case a.Status == 303 && c.status == 409: // the job has failed after the answer
			wantAnswer(t, c.name, b.ended(location), coded(c.says))
		case c.status == 303:
			wantAnswer(t, c.name, a, 303, valued{"Location", "/console" + page + "?" + c.says})
		default:
			wantAnswer(t, c.name+" "+c.value, a, c.status, c.says)
		}
	}
	wantAnswer(t, "a form of the draft", submit(b, page+"/cancel", draft), 409, "has changed since you opened it")
	s.Buy(fleet.Order{Campaign: id, User: s.User("mina"), Layer: 1, Quantity: 2, Wait: true})
	s.Buy(fleet.Order{Campaign: id, User: s.User("otto"), Layer: 2, Wait: true})
	wantAnswer(t, "what is refunded", b.get(page+"/cancel"), 200, "3 positions, 37.00 EUR")
	a := fill(b, page+"/cancel", "typed", name, "/reason", "rain")
	mustAnswer(t, "cancel", a, 303)
	wantAnswer(t, "the cancellation", b.ended(a.Header.Get("Location")), `"state":"succeeded"`)
	wantAnswer(t, "the campaign", s.Do(0, s.Operator, http.MethodGet, "/v1"+page, nil, nil), `"state":"cancelled"`, `"cancel_reason":"rain"`)
	wantAnswer(t, "no campaign", b.get("/campaigns/1/pause"), 404)
}
