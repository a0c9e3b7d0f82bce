package pages

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"

	"triprize/internal/domain/fault"
)

// answered asks for a file, and returns the answer while it is still in memory.
func answered(t *testing.T, a *file, header map[string]string) *fasthttp.Response {
	t.Helper()
	app := fiber.New()
	request := &fasthttp.RequestCtx{}
	for name, value := range header {
		request.Request.Header.Set(name, value)
	}
	if err := a.send(app.AcquireCtx(request)); err != nil {
		t.Fatal(err)
	}
	return &request.Response
}

func TestAllAnswersShareOneCopyOfAFile(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("let a = 1;\n"), 10_000)
	for name, a := range map[string]*file{"plain": newFile("text/javascript", "", content), "zipped": newFile("text/javascript", "", zip(content))} {
		for encoding, want := range map[string]string{"": "", "gzip, br": "gzip", "br": "", "gzip;q=0": "", "identity": ""} {
			first, second := answered(t, a, map[string]string{"Accept-Encoding": encoding}), answered(t, a, map[string]string{"Accept-Encoding": encoding})
			if string(first.Header.ContentEncoding()) != want || string(first.Header.Peek("Vary")) != "Accept-Encoding" {
				t.Errorf("%s file for %q: %s", name, encoding, first.Header.String())
			}
			body := first.Body()
			if &body[0] != &second.Body()[0] {
				t.Errorf("%s file for %q: each answer has its own copy", name, encoding)
			}
			if want == "gzip" {
				archive, err := gzip.NewReader(bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				body, _ = io.ReadAll(archive)
			}
			if !bytes.Equal(body, content) {
				t.Errorf("%s file for %q: another content of %d bytes", name, encoding, len(body))
			}
			tag := string(first.Header.Peek("ETag"))
			known := answered(t, a, map[string]string{"Accept-Encoding": encoding, "If-None-Match": `"x", ` + tag})
			if known.StatusCode() != http.StatusNotModified || len(known.Body()) != 0 || string(known.Header.Peek("ETag")) != tag {
				t.Errorf("%s file for %q: to who has it: %d, %d bytes", name, encoding, known.StatusCode(), len(known.Body()))
			}
		}
	}
}

// Beyond the bytes of all, each address has its own rate.
func TestACrowdThatWantsOnlyFilesGetsSoMuchAndNoMore(t *testing.T) {
	t.Parallel()
	left, errBusy := 1, errors.New("busy")
	p := &pages{budget: rate.NewLimiter(0, 2500), Options: Options{HasRate: true, Charge: func(*fiber.Ctx) error {
		if left--; left < 0 {
			return errBusy
		}
		return nil
	}}}
	a := p.file("text/javascript", "", bytes.Repeat([]byte("x"), 1000))
	app := fiber.New()
	for i, want := range []error{nil, nil, nil, errBusy, errBusy} {
		if err := a.send(app.AcquireCtx(&fasthttp.RequestCtx{})); !errors.Is(err, want) {
			t.Errorf("answer %d: %v, want %v", i, err, want)
		}
	}
	if known := answered(t, a, map[string]string{"If-None-Match": a.tagged.Tag}); known.StatusCode() != http.StatusNotModified {
		t.Errorf("to who has it: %d", known.StatusCode())
	}
	p.HasRate, left = false, 1
	if err := a.send(app.AcquireCtx(&fasthttp.RequestCtx{})); fault.CodeOf(err) != fault.RateLimited {
		t.Errorf("where addresses have no rate: %v", err)
	}
}

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
	all, err := groups()
	p := &pages{}
	if err = errors.Join(err, p.parse()); err != nil {
		t.Fatal(err)
	}
	page, err := p.render(english, "problems", layout{Title: "Problems", Data: all})
	home, failed := p.render(english, "home", layout{Title: "Triprize", Data: fiber.Map{}})
	if err = errors.Join(err, failed); err != nil {
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
			if slices.Contains([]string{"script", "style", "img", "iframe", "form"}, start.Name.Local) {
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
