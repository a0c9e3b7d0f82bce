package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/key"
	webpages "triprize/web/console"
)

// view is what a page shows.
type view struct {
	Title    string
	Path     string        // of the page
	Query    string        // what the part that moves depends on, with its question mark
	Operator *key.Session  // nil: nobody is signed in
	Said     string        // what a command has done
	Job      string        // that goes on with it; empty: none
	Problem  *problem      // why it was not done; nil: it was, or there was none
	Form     *form         // what was typed
	Live     template.HTML // the part that moves, as it is now
	Data     any
}

// parsePages parses the pages: each file is one, with the blocks of layout.html and parts.html.
func parsePages(files fs.FS) (map[string]*template.Template, error) {
	shared, err := template.New("").Funcs(functions).ParseFS(files, "layout.html", "parts.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "*.html")
	if err != nil {
		return nil, err
	}
	all := make(map[string]*template.Template)
	for _, name := range names {
		page, err := template.Must(shared.Clone()).ParseFS(files, name)
		if err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(name, ".html")] = page
	}
	return all, nil
}

// functions are those of templates, beside the standard ones.
var functions = template.FuncMap{
	"money": func(amount any, currency client.Currency) string {
		text := fmt.Sprint(amount)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || currency == "" {
			return text
		}
		return money.Currency(currency).Format(money.Amount(n))
	},
	"when": func(t time.Time) template.HTML { // the server's clock; the script adds how long ago
		if t.IsZero() {
			return "–"
		}
		return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339) + `">` + t.UTC().Format("2006-01-02 15:04:05") + `</time>`) //nolint:gosec // no text of others
	},
	"link": func(page string, id uuid.UUID) template.HTML { // an id as a link to its page
		if id == uuid.Nil {
			return "–"
		}
		return template.HTML(`<a href="` + Path + "/" + page + "/" + id.String() + `"><code>` + id.String() + `</code></a>`) //nolint:gosec // no text of others
	},
	"page":    pageOf,
	"newKey":  uuid.NewString,
	"words":   strings.Fields,
	"json":    func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err },
	"percent": func(part, whole int64) int64 { return 100 * part / max(whole, 1) },
	"problem": func(code string) string { return fault.Code(code).Title() },
	"number":  func(n any) string { return grouped(fmt.Sprint(n)) },
}

// grouped writes a number with a thin space between thousands.
func grouped(digits string) string {
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "\u202f" + digits[at:]
	}
	return digits
}

// show answers with a page.
func (c *console) show(f *fiber.Ctx, page string, v view) error {
	if session := sessionOf(f); session.KeyPrefix != "" {
		v.Operator = &session
	}
	v.Path, v.Said = f.Path(), said[f.Query("done")]
	if job, err := uuid.Parse(f.Query("job")); err == nil {
		v.Job = job.String()
	}
	return c.render(f, page, "layout", v)
}

// render answers with a block of a page.
func (c *console) render(f *fiber.Ctx, page, block string, data any) error {
	body, err := c.write(page, block, data)
	if err != nil {
		return err
	}
	f.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return f.Send(body)
}

func (c *console) write(page, block string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := c.pages[page].ExecuteTemplate(&b, block, data)
	return b.Bytes(), err
}

// form is what an operator has typed, by the JSON pointer of the member that it becomes, and what is wrong with it.
type form struct {
	values fiberValues
	Faults map[string]string
	parts  map[string][]string // what the elements of an array are called that a field becomes: line 3
	job    uuid.UUID           // that a command has become
	next   string              // the page that follows, if it is another than the action's
}

type fiberValues map[string]string

// Del removes a value, which is typed again.
func (v fiberValues) Del(pointer string) { delete(v, pointer) }

// newForm reads the form of a request.
func newForm(f *fiber.Ctx) *form {
	typed := &form{values: make(fiberValues), Faults: make(map[string]string)}
	for name, value := range f.Request().PostArgs().All() {
		typed.values[string(name)] = strings.ReplaceAll(strings.TrimSpace(string(value)), "\r\n", "\n")
	}
	return typed
}

// Value is what was typed into a field, or else what it has before.
func (t *form) Value(pointer string, otherwise any) any {
	if t != nil {
		if value, sent := t.values[pointer]; sent {
			return value
		}
	}
	return otherwise
}

// Fault is what is wrong with a field; empty: nothing is known.
func (t *form) Fault(pointer string) string {
	if t == nil {
		return ""
	}
	return t.Faults[pointer]
}

func (t *form) text(pointer string) string { return t.values[pointer] }

// number reads a whole number; an empty field is 0.
func (t *form) number(pointer string) int64 {
	text := t.values[pointer]
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Faults[pointer] = "must be a whole number"
	}
	return n
}

// time reads what a field of the type datetime-local has, in UTC; an empty field is the zero time.
func (t *form) time(pointer string) time.Time {
	text := t.values[pointer]
	if text == "" {
		return time.Time{}
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at
		}
	}
	t.Faults[pointer] = "must be a time such as 2026-12-24T18:00, in UTC"
	return time.Time{}
}

// mark adds what is wrong with a field, unless it is said, or too much to read.
func (t *form) mark(pointer, detail string) {
	if known := t.Faults[pointer]; len(known) < 500 && !strings.Contains(known, detail) {
		t.Faults[pointer] = strings.TrimPrefix(known+"; "+detail, "; ")
	}
}

// take adds what the API says of fields and of what is in them: /layers/3/price at /layers. What is wrong with other
// things stays in the problem.
func (t *form) take(p *problem) {
	var others []client.FieldError
	for _, wrong := range p.Fields {
		at := wrong.Pointer
		for _, sent := t.values[at]; !sent && at != ""; _, sent = t.values[at] {
			at = at[:max(strings.LastIndexByte(at, '/'), 0)]
		}
		if at == "" {
			others = append(others, wrong)
			continue
		}
		index, member, _ := strings.Cut(strings.TrimPrefix(wrong.Pointer[len(at):], "/"), "/")
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(t.parts[at]) {
			wrong.Detail = strings.TrimSpace(t.parts[at][i]+" "+member) + ": " + wrong.Detail
		}
		t.mark(at, wrong.Detail)
	}
	p.Fields = others
}

// sendStatic answers with a script, a style or a picture. Their names have the release's version as a query, so that
// browsers may keep them.
func (c *console) sendStatic(f *fiber.Ctx) error {
	name := f.Params("file")
	content, err := webpages.Files.ReadFile(path.Join("static", path.Base(name)))
	if err != nil {
		return fiber.ErrNotFound
	}
	f.Type(strings.TrimPrefix(path.Ext(name), "."), "utf-8")
	f.Set(fiber.HeaderCacheControl, "public, max-age=3600")
	return f.Send(content)
}
