package docs

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"triprize/internal/domain/fault"
)

func problemsOf(t *testing.T) (all []problem) {
	t.Helper()
	list, err := groups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range list {
		all = append(all, g.Problems...)
	}
	return all
}

// A retry with the wrong key does a thing twice, or never: each explanation must say which.
func TestWhatMayBeRepeatedSaysWithWhichKey(t *testing.T) {
	t.Parallel()
	for _, p := range problemsOf(t) {
		switch p.Code.Kind() {
		case fault.KindUnavailable, fault.KindLimited:
			if !strings.Contains(p.Retry, "the same `Idempotency-Key`") || !strings.Contains(p.Retry, "`Retry-After`") {
				t.Errorf("%s: after how long, and with the same key? %q", p.Code, p.Retry)
			}
		case fault.KindInternal, fault.KindTimeout:
			if !strings.Contains(p.Retry, "the same `Idempotency-Key`") {
				t.Errorf("%s: with which key? %q", p.Code, p.Retry)
			}
		case fault.KindConflict:
			if text := p.Retry + strings.Join(p.Remedy, "\n"); strings.Contains(text, "same key") || strings.Contains(text, "same `Idempotency-Key`") {
				t.Errorf("%s: a refusal is remembered under its key, so the same key cannot help", p.Code)
			}
		}
	}
}

// The pages are read as strictly as XML: every element closed, every attribute quoted.
func TestThePageAboutProblemsHasAnAnchorForEveryCode(t *testing.T) {
	t.Parallel()
	page, err := problemsPage()
	if err != nil {
		t.Fatal(err)
	}
	home, err := files.ReadFile("home.html")
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]int)
	for _, text := range []string{string(page), string(home)} {
		for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			start, _ := token.(xml.StartElement)
			if slices.Contains([]string{"script", "link", "img", "iframe", "form"}, start.Name.Local) {
				t.Errorf("there is a %s", start.Name.Local)
			}
			for _, a := range start.Attr {
				if a.Name.Local == "id" {
					ids[a.Value]++
				}
			}
		}
	}
	for _, code := range fault.Codes() {
		if ids[string(code)] != 1 || strings.Count(string(page), `href="#`+string(code)+`"`) != 1 {
			t.Errorf("%s: %d anchors", code, ids[string(code)])
		}
	}
	if strings.Contains(string(page), "`") || strings.Contains(string(page), "ZgotmplZ") {
		t.Errorf("something is left:\n%s", page)
	}
}

func TestWhatStandsInATextIsShownAndNotObeyed(t *testing.T) {
	t.Parallel()
	const hostile = `</code><script>alert("1 & 2")</script>`
	if got := string(prose("It is `" + hostile + "`" + hostile)); strings.Contains(got, "<script") || strings.Count(got, "&lt;script&gt;") != 2 {
		t.Error(got)
	}
}
