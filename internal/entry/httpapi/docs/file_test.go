package docs

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"
)

// answered asks for an File, and returns the answer while it is still in memory.
func answered(t *testing.T, a *File, header map[string]string) *fasthttp.Response {
	t.Helper()
	app := fiber.New()
	request := &fasthttp.RequestCtx{}
	for name, value := range header {
		request.Request.Header.Set(name, value)
	}
	if err := a.Send(app.AcquireCtx(request)); err != nil {
		t.Fatal(err)
	}
	return &request.Response
}

func TestAllAnswersShareOneCopyOfAFile(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("let a = 1;\n"), 10_000)
	for name, a := range map[string]*File{"plain": NewFile("text/javascript", "", content), "zipped": NewFile("text/javascript", "", zip(content))} {
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

func TestACrowdThatWantsOnlyFilesGetsSoMuchAndNoMore(t *testing.T) {
	t.Parallel()
	a := NewFile("text/javascript", "", bytes.Repeat([]byte("x"), 1000))
	a.budget = rate.NewLimiter(0, 2500)
	app := fiber.New()
	for i, want := range []error{nil, nil, errBusyFiles, errBusyFiles} {
		if err := a.Send(app.AcquireCtx(&fasthttp.RequestCtx{})); !errors.Is(err, want) {
			t.Errorf("answer %d: %v, want %v", i, err, want)
		}
	}
	if known := answered(t, a, map[string]string{"If-None-Match": a.tagged.Tag}); known.StatusCode() != http.StatusNotModified {
		t.Errorf("to who has it: %d", known.StatusCode())
	}
}
