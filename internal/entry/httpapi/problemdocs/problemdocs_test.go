package problemdocs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"triprize/internal/domain/fault"
)

func statusOf(c fault.Code) int {
	switch c.Kind() {
	case fault.KindConflict:
		return http.StatusConflict
	case fault.KindLimited:
		return http.StatusTooManyRequests
	case fault.KindInternal:
		return http.StatusInternalServerError
	default:
		return http.StatusBadRequest
	}
}

func htmlOf(t *testing.T, c fault.Code) string {
	t.Helper()
	var page bytes.Buffer
	if err := ProblemPage(&page, c, statusOf(c)); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func TestThePageOfEveryCodeIsWholeAndNeedsNothingElse(t *testing.T) {
	t.Parallel()
	for _, c := range fault.Codes() {
		page := htmlOf(t, c)
		elements := check(t, page)
		for _, e := range elements {
			if e.Name.Local == "h1" && e.text != c.Title() || e.attribute("class") == "status" && e.text != statusLine(statusOf(c)) {
				t.Errorf("%s: %s says %q", c, e.Name.Local, e.text)
			}
		}
		steps := 0
		for _, e := range elements {
			if e.Name.Local == "li" {
				steps++
			}
		}
		if want := len(Explain(c).Remedy); steps != want {
			t.Errorf("%s: %d steps, want %d", c, steps, want)
		}
		if strings.Contains(page, "`") {
			t.Errorf("%s: a backquote is left", c)
		}
		for _, to := range []string{`href="/problems"`, `href="/docs"`} {
			if !strings.Contains(page, to) {
				t.Errorf("%s: no %s", c, to)
			}
		}
	}
}

// The example is what a client would get: it parses, and its members are those of the contract.
func TestTheExampleOfEveryCodeIsAProblemDocument(t *testing.T) {
	t.Parallel()
	if len(explanations()) != len(fault.Codes()) {
		t.Errorf("%d examples for %d codes", len(explanations()), len(fault.Codes()))
	}
	for _, c := range fault.Codes() {
		var shown string
		for _, e := range parse(t, htmlOf(t, c)) {
			if e.Name.Local == "code" && strings.HasPrefix(e.text, "{\n") {
				shown = e.text
			}
		}
		var d document
		decoder := json.NewDecoder(strings.NewReader(shown))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&d); err != nil {
			t.Fatalf("%s: %v in %q", c, err, shown)
		}
		if d.Type != "/problems/"+string(c) || d.Title != c.Title() || d.Status != statusOf(c) || d.Code != c || d.Detail == "" {
			t.Errorf("%s: %+v", c, d)
		}
		if answered := Explain(c).Occurrence.Where != inJob; answered != (d.Instance != "") || answered != (d.RequestID != "") {
			t.Errorf("%s: instance %q, request id %q", c, d.Instance, d.RequestID)
		}
		if (len(d.Errors) > 0) != (c == fault.InvalidRequest || c == fault.PositionTaken) {
			t.Errorf("%s: errors %v", c, d.Errors)
		}
		if k := c.Kind(); (k == fault.KindUnavailable || k == fault.KindLimited) != strings.Contains(strings.Join(Explain(c).Occurrence.Headers, "\n"), "Retry-After: ") {
			t.Errorf("%s: headers %v", c, Explain(c).Occurrence.Headers)
		}
	}
}

func TestWhatStandsInATextIsShownAndNotObeyed(t *testing.T) {
	t.Parallel()
	const hostile = `</code><script>alert("1 & 2")</script>`
	var page bytes.Buffer
	err := render(&page, "problem.html", problemPage{Title: hostile, Code: hostile, Status: hostile, Arrives: hostile, Group: group{Name: `"><script>`},
		Explanation: Explanation{Happened: "It is `" + hostile + "`.", Retry: hostile, Remedy: []string{hostile}}, Example: sample{Head: hostile, Body: hostile}})
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, e := range check(t, page.String()) {
		if strings.Contains(e.text, hostile) {
			shown++
		}
	}
	if shown != 10 { // title, h1, status, code, happened, retry, step, place, head and body
		t.Errorf("shown %d times:\n%s", shown, page.String())
	}
}

func TestTheIndexHasEveryCodeOnce(t *testing.T) {
	t.Parallel()
	var page, text bytes.Buffer
	if err := errors.Join(ProblemIndex(&page, statusOf), ProblemIndexText(&text, statusOf)); err != nil {
		t.Fatal(err)
	}
	check(t, page.String())
	for _, c := range fault.Codes() {
		if n := strings.Count(page.String(), `href="/problems/`+string(c)+`"`); n != 1 {
			t.Errorf("%s: %d links", c, n)
		}
		if n := strings.Count(text.String(), " "+string(c)+" "); n != 1 {
			t.Errorf("%s: %d lines", c, n)
		}
	}
}

func TestPlainTextSaysTheSameInLinesOfATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range fault.Codes() {
		var b bytes.Buffer
		if err := ProblemText(&b, c, statusOf(c)); err != nil {
			t.Fatal(err)
		}
		text, e := b.String(), Explain(c)
		words := strings.Join(strings.Fields(text), " ")
		for _, want := range append(slices.Clone(e.Remedy), string(c), c.Title(), e.Happened, e.Retry, `"code": "`+string(c)+`"`, statusLine(statusOf(c)), indexPath, docsPath) {
			if !strings.Contains(words, want) {
				t.Errorf("%s: %q is missing", c, want)
			}
		}
		before, _, _ := strings.Cut(text, "WHAT IT LOOKS LIKE")
		for line := range strings.Lines(before) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > textWidth {
				t.Errorf("%s: a line of %d characters: %q", c, n, line)
			}
		}
	}
}

func TestForAnUnknownCodeNothingIsWritten(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, write := range []func(io.Writer, fault.Code, int) error{ProblemPage, ProblemText} {
		if err := write(&b, "made-up", http.StatusTeapot); err == nil || b.Len() > 0 {
			t.Errorf("%v and %d bytes", err, b.Len())
		}
	}
}

// Colours that change between light and dark must be named in both.
func TestBothSchemesNameTheSameColours(t *testing.T) {
	t.Parallel()
	style, err := os.ReadFile("templates/style.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, found := strings.Cut(string(style), "prefers-color-scheme: dark")
	dark, _, _ = strings.Cut(dark, "}\n}")
	names := func(css string) []string {
		return regexp.MustCompile(`--\w+: #`).FindAllString(css, -1)
	}
	if a, b := names(light), names(dark); !found || len(a) == 0 || !slices.Equal(a, b) {
		t.Errorf("light %v, dark %v", a, b)
	}
}
