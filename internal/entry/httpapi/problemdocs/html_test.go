package problemdocs

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"triprize/internal/domain/fault"
)

// element is a start tag of a page, with the text inside that is not in another element.
type element struct {
	xml.StartElement
	text string
}

// parse reads a page as strictly as XML: every element closed, every attribute
// quoted, every ampersand escaped.
func parse(t *testing.T, page string) (elements []*element) {
	t.Helper()
	if !strings.HasPrefix(page, "<!doctype html>\n<html lang=\"en\">") {
		t.Errorf("the page begins %.40q", page)
	}
	var open []*element
	for decoder := xml.NewDecoder(strings.NewReader(page)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return elements
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, page)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{StartElement: token.Copy()}
			elements, open = append(elements, e), append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text += string(token)
			}
		}
	}
}

func (e *element) attribute(name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// check holds for every page: landmarks, one heading, labels that exist, and
// nothing that a browser would fetch or run.
func check(t *testing.T, page string) []*element {
	t.Helper()
	elements := parse(t, page)
	count, ids := make(map[string]int), make(map[string]bool)
	for _, e := range elements {
		count[e.Name.Local]++
		if id := e.attribute("id"); id != "" {
			if ids[id] {
				t.Errorf("two elements have the id %q", id)
			}
			ids[id] = true
		}
	}
	for _, once := range []string{"title", "header", "main", "h1", "footer", "style"} {
		if count[once] != 1 {
			t.Errorf("%d elements %s", count[once], once)
		}
	}
	for _, e := range elements {
		if label := e.attribute("aria-labelledby"); label != "" && !ids[label] {
			t.Errorf("nothing has the id %q", label)
		}
		if slices.Contains([]string{"script", "link", "img", "iframe", "object", "base", "form"}, e.Name.Local) {
			t.Errorf("there is a %s", e.Name.Local)
		}
		for _, a := range e.Attr {
			if a.Name.Local == "src" || a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") {
				t.Errorf("%s has %s=%q", e.Name.Local, a.Name.Local, a.Value)
			}
		}
		if to := e.attribute("href"); e.Name.Local == "a" && !slices.Contains([]string{"/", "/verify", "/openapi.json", docsPath, indexPath}, to) && !fault.Code(strings.TrimPrefix(to, indexPath+"/")).Known() {
			t.Errorf("there is a link to %q", to)
		}
	}
	if found := regexp.MustCompile(`(?i)[a-z]+://\S*|url\(|@import|ZgotmplZ`).FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
	return elements
}

func TestThePageAtTheRootLeadsToTheOthers(t *testing.T) {
	t.Parallel()
	var page, text strings.Builder
	if err := errors.Join(Home(&page), HomeText(&text)); err != nil {
		t.Fatal(err)
	}
	check(t, page.String())
	for _, path := range []string{"/docs", "/problems", "/verify"} {
		if !strings.Contains(page.String(), `href="`+path+`"`) || !strings.Contains(text.String(), path+" ") {
			t.Errorf("%s is missing in %s\n%s", path, page.String(), text.String())
		}
	}
}
