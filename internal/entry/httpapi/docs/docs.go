// Package docs has the pages for people: the contract, what problems mean, the check of a draw.
//
// They load nothing from other servers, and a crowd that reads them takes little.
package docs

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"mime"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/swaggest/swgui/v5/static"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"go.yaml.in/yaml/v3"
	"golang.org/x/time/rate"

	"triprize.example/draw/web"
	documents "triprize/docs"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/web/console"
)

// Mount registers the pages.
func Mount(router fiber.Router, contractJSON []byte) error {
	problems, err := problemsPage()
	read := func(from fs.ReadFileFS, name string) []byte {
		content, failed := from.ReadFile(name)
		err = errors.Join(err, failed)
		return content
	}
	const script = fiber.MIMETextJavaScriptCharsetUTF8
	budget := rate.NewLimiter(publicBytes, 2*publicBytes)
	serve := func(content []byte, contentType, policy string, paths ...string) {
		a := newFile(contentType, policy, content)
		a.budget = budget
		for _, at := range paths {
			router.Get(at, a.send)
		}
	}
	page := func(content []byte, policy string, paths ...string) {
		serve(content, fiber.MIMETextHTMLCharsetUTF8, policy, paths...)
	}
	page(read(files, "home.html"), plainPolicy, "/")
	page(problems, plainPolicy, "/problems")
	page(read(files, "reference.html"), referencePolicy, "/docs", "/docs/")
	page(web.VerifyPage, web.VerifyPolicy(), "/verify", "/verify/")
	serve(contractJSON, fiber.MIMEApplicationJSON, "", "/openapi.json")
	serve(read(files, "reference.js"), script, "", "/docs/start.js")
	serve(read(static.FS, "swagger-ui-bundle.js.gz"), script, "", "/docs/swagger-ui-bundle.js")
	serve(read(static.FS, "swagger-ui.css.gz"), "text/css; charset=utf-8", "", "/docs/swagger-ui.css")
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	err = errors.Join(err, fs.WalkDir(documents.Files, ".", func(name string, _ fs.DirEntry, failed error) error {
		if failed != nil || path.Ext(name) != ".md" {
			return failed
		}
		html := bytes.NewBufferString(`<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>` + name + "</title><main>")
		failed = markdown.Convert(read(documents.Files, name), html)
		page(html.Bytes(), plainPolicy, "/docs/"+name)
		return failed
	}))
	names, _ := fs.Glob(console.Files, "static/*")
	for _, name := range names {
		serve(read(console.Files, name), mime.TypeByExtension(path.Ext(name)), "", "/console/"+name)
	}
	return err
}

// plainPolicy is for pages that load and run nothing.
const plainPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// referencePolicy is for the contract in Swagger UI, whose own page has inline scripts.
const referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is a file that stays the same while the process runs. All answers share its
// bytes, so that many clients that read slowly cost no more than one.
type file struct {
	contentType string
	policy      string // Content-Security-Policy; empty: none
	plain       func() []byte
	zipped      func() []byte
	tagged      response.Tagged
	budget      *rate.Limiter // of bytes; nil: none
}

// publicBytes is how many bytes a second of the files for people a process sends, and
// twice as many at once. Anybody may ask for these, and browsers keep them; so a
// crowd that wants nothing else takes no time from those who buy.
const publicBytes = 32 << 20

var errBusyFiles = fault.New(fault.RateLimited, "too many requests for the pages of this server; retry in a moment")

var gzipMagic = []byte("\x1f\x8b")

// newFile returns the asset of some bytes, or of a gzip file. The other form is made
// when somebody first wants it.
func newFile(contentType, policy string, content []byte) *file {
	digest := sha256.Sum256(content)
	a := &file{contentType: contentType, policy: policy, tagged: response.Tagged{Tag: `W/"` + hex.EncodeToString(digest[:12]) + `"`}} // weak: it stands for both forms
	here := func() []byte { return content }
	if bytes.HasPrefix(content, gzipMagic) {
		a.zipped, a.plain = here, sync.OnceValue(func() []byte { return unzip(content) })
	} else {
		a.plain, a.zipped = here, sync.OnceValue(func() []byte { return zip(content) })
	}
	return a
}

func zip(content []byte) []byte {
	var zipped bytes.Buffer
	archive := gzip.NewWriter(&zipped)
	_, _ = archive.Write(content) // to memory it cannot fail
	_ = archive.Close()
	return bytes.Clone(zipped.Bytes())
}

// unzip returns what is in a file that is compiled in; a broken one is a defect of
// the build, which a test would show.
func unzip(content []byte) []byte {
	archive, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil
	}
	plain, _ := io.ReadAll(archive)
	return bytes.Clone(plain)
}

// send answers with the file, or with 304.
func (a *file) send(c *fiber.Ctx) error {
	c.Set(fiber.HeaderETag, a.tagged.Tag)
	c.Set(fiber.HeaderCacheControl, "no-cache") // kept, and asked for each time: another release has other files
	c.Vary(fiber.HeaderAcceptEncoding)
	if a.policy != "" {
		c.Set(fiber.HeaderContentSecurityPolicy, a.policy)
	}
	if known := c.Get(fiber.HeaderIfNoneMatch); known != "" && a.tagged.Matched(&known).Unchanged {
		c.Status(fiber.StatusNotModified)
		return nil
	}
	c.Set(fiber.HeaderContentType, a.contentType)
	content := a.plain
	if zipped := c.Get(fiber.HeaderAcceptEncoding); strings.Contains(zipped, "gzip") && c.AcceptsEncodings("gzip") != "" {
		content = a.zipped
	}
	body := content()
	if a.budget != nil && !a.budget.AllowN(time.Now(), len(body)) {
		c.Response().Header.Del(fiber.HeaderETag)
		return errBusyFiles
	}
	if len(body) > 0 && bytes.HasPrefix(body, gzipMagic) {
		c.Set(fiber.HeaderContentEncoding, "gzip")
	}
	return c.Send(body)
}

//go:embed home.html problems.html problems.yaml reference.html reference.js
var files embed.FS

// problem is what the page says about a code. problems.yaml says what its members mean.
type problem struct {
	Code     fault.Code `yaml:"-"`
	Status   int        `yaml:"-"`
	Happened string
	Retry    string
	Remedy   []string // steps, in order
	Where    string
}

// Arrives says where a client finds the problem.
func (p problem) Arrives() string {
	inAJob := fmt.Sprintf("the `problem` of a failed job, where the response has the status 200 or 202, and the problem %d.", p.Status)
	switch p.Where {
	case "job":
		return inAJob
	case "either":
		return fmt.Sprintf("the response to a request, with the status %d; or %s", p.Status, inAJob)
	default:
		return fmt.Sprintf("the response to a request, with the status %d.", p.Status)
	}
}

// group is the problems that a client handles in the same way.
type group struct {
	Title, Lede string
	Kinds       []fault.Kind // nil: all others
	Problems    []problem
}

func groups() ([]group, error) {
	source, err := files.ReadFile("problems.yaml")
	if err != nil {
		return nil, err
	}
	var texts map[fault.Code]problem
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	decoder.KnownFields(true)
	if err := decoder.Decode(&texts); err != nil {
		return nil, err
	}
	all := []group{
		{Title: "Final results", Kinds: []fault.Kind{fault.KindConflict, fault.KindMismatch},
			Lede: "The request is valid, but the current state does not allow it. Most of these are the `problem` of a failed job."},
		{Title: "Retry later", Kinds: []fault.Kind{fault.KindTimeout, fault.KindLimited, fault.KindUnavailable, fault.KindInternal},
			Lede: "The request is valid. Retry it with the same `Idempotency-Key`."},
		{Title: "Correct the request", Lede: "The same request would be rejected again: change it first."},
	}
	for _, code := range fault.Codes() {
		p, known := texts[code]
		if !known {
			return nil, fmt.Errorf("problems.yaml does not have the code %s", code)
		}
		p.Code, p.Status = code, resource.Statuses[code.Kind()]
		i := slices.IndexFunc(all, func(g group) bool { return g.Kinds == nil || slices.Contains(g.Kinds, code.Kind()) })
		all[i].Problems = append(all[i].Problems, p)
	}
	for _, g := range all {
		slices.SortFunc(g.Problems, func(a, b problem) int { return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code)) })
	}
	return all, nil
}

// problemsPage returns the page that the type of every problem document links to.
func problemsPage() ([]byte, error) {
	all, err := groups()
	if err != nil {
		return nil, err
	}
	page, err := template.New("").Funcs(template.FuncMap{"prose": prose}).ParseFS(files, "problems.html")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = page.ExecuteTemplate(&b, "problems.html", all)
	return b.Bytes(), err
}

// prose returns a sentence of problems.yaml as HTML: text in `backquotes` is code.
func prose(sentence string) template.HTML {
	var b strings.Builder
	for i, text := range strings.Split(sentence, "`") {
		text = template.HTMLEscapeString(text)
		if i%2 == 1 {
			text = "<code>" + text + "</code>"
		}
		b.WriteString(text)
	}
	return template.HTML(b.String()) //nolint:gosec // it is escaped
}
