// Package pages has the pages that anybody may read: public campaigns, the check of a draw, the reference.
//
// They load nothing from other servers, and a crowd that reads them takes little: it shares one budget of bytes, and
// a live campaign is read and rendered once for all ([watched]).
package pages

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"html/template"
	"io"
	"io/fs"
	"mime"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	swagger "github.com/swaggest/swgui/v5/static"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"golang.org/x/time/rate"

	"triprize.example/draw/web"
	documents "triprize/docs"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/readcache"
	"triprize/web/console"
	files "triprize/web/pages"
)

// Options are what the pages need of the api that serves them.
type Options struct {
	Contract []byte                                                           // as JSON
	Read     func(ctx context.Context, id uuid.UUID) (Snapshot, error)        // of a campaign that is public; others are a not-found Error
	List     func(ctx context.Context, most int) ([]campaign.Campaign, error) // the newest of these: id, name, state
	Charge   func(*fiber.Ctx) error                                           // charges a request to its address, beside what is free for all
	HasRate  bool                                                             // addresses have one
}

type pages struct {
	Options
	templates map[string]*template.Template // by language and page
	messages  map[string]map[string]string  // by language and key
	budget    *rate.Limiter
	live      *readcache.Cache[uuid.UUID, *watched]
	home      *readcache.Cache[struct{}, *file]
}

// Mount registers the pages.
func Mount(router fiber.Router, options Options) error {
	p := &pages{Options: options, budget: rate.NewLimiter(publicBytes, 2*publicBytes)}
	err := p.parse()
	read := func(from fs.ReadFileFS, name string) []byte {
		content, failed := from.ReadFile(name)
		err = errors.Join(err, failed)
		return content
	}
	static := func(content []byte, contentType, policy string, paths ...string) {
		a := p.file(contentType, policy, content)
		for _, at := range paths {
			router.Get(at, a.send)
		}
	}
	page := func(name, title string, data any, at string) {
		content, failed := p.render(english, name, layout{Title: title, Data: data})
		err = errors.Join(err, failed)
		static(content, fiber.MIMETextHTMLCharsetUTF8, plainPolicy, at)
	}
	problems, failed := groups()
	err = errors.Join(err, failed)
	page("problems", "Problems", problems, "/problems")
	static(read(files.Files, "reference.html"), fiber.MIMETextHTMLCharsetUTF8, referencePolicy, "/docs", "/docs/")
	static(web.VerifyPage, fiber.MIMETextHTMLCharsetUTF8, web.VerifyPolicy(), "/verify", "/verify/")
	static(options.Contract, fiber.MIMEApplicationJSON, "", "/openapi.json")
	static(read(swagger.FS, "swagger-ui-bundle.js.gz"), fiber.MIMETextJavaScriptCharsetUTF8, "", "/docs/swagger-ui-bundle.js")
	static(read(swagger.FS, "swagger-ui.css.gz"), "text/css; charset=utf-8", "", "/docs/swagger-ui.css")
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	err = errors.Join(err, fs.WalkDir(documents.Files, ".", func(name string, _ fs.DirEntry, failed error) error {
		if failed != nil || path.Ext(name) != ".md" {
			return failed
		}
		var text bytes.Buffer
		failed = markdown.Convert(read(documents.Files, name), &text)
		page("document", name, template.HTML(text.String()), "/docs/"+name) //nolint:gosec // it is ours
		return failed
	}))
	for at, folder := range map[string]fs.FS{"/static/": files.Files, "/console/static/": console.Files} {
		names, _ := fs.Glob(folder, "static/*")
		for _, name := range names {
			content, failed := fs.ReadFile(folder, name)
			err = errors.Join(err, failed)
			static(content, mime.TypeByExtension(path.Ext(name)), "", at+path.Base(name))
		}
	}
	p.mountLive(router)
	return err
}

// plainPolicy is for pages that run nothing.
const plainPolicy = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

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
	allow       func(c *fiber.Ctx, bytes int) error // nil: as many as are asked for
	kept        string                              // Cache-Control; empty: it is asked for each time, since another release has other files
}

// publicBytes is how many bytes a second of the files for people a process sends, and
// twice as many at once. Anybody may ask for these, and browsers keep them; so a
// crowd that wants nothing else takes no time from those who buy.
const publicBytes = 32 << 20

// allow takes bytes of a file from those of this second. When there are none, an address still has its own rate: so one
// that wants all leaves something to the others.
func (p *pages) allow(c *fiber.Ctx, bytes int) error {
	if p.budget.AllowN(time.Now(), bytes) {
		return nil
	}
	if !p.HasRate {
		return fault.New(fault.RateLimited, "too many requests for the pages of this server; retry in a moment")
	}
	return p.Charge(c)
}

// file returns a file that is sent within the budget of all.
func (p *pages) file(contentType, policy string, content []byte) *file {
	a := newFile(contentType, policy, content)
	a.allow = p.allow
	return a
}

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
	c.Set(fiber.HeaderCacheControl, cmp.Or(a.kept, "no-cache"))
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
	if a.allow != nil {
		if err := a.allow(c, len(body)); err != nil {
			c.Response().Header.Del(fiber.HeaderETag)
			return err
		}
	}
	if len(body) > 0 && bytes.HasPrefix(body, gzipMagic) {
		c.Set(fiber.HeaderContentEncoding, "gzip")
	}
	return c.Send(body)
}
