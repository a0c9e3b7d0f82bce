package console

import (
	"bytes"
	"encoding/json"
	"html/template"
	"io/fs"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"triprize.example/client"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/key"
)

// view is what a page shows.
type view struct {
	Title    string
	Path     string          // of the page
	Query    string          // what the part that moves depends on
	Operator *key.Session    // nil: nobody is signed in
	Done     bool            // a command
	Job      string          // that goes on with it; empty: none
	Problem  *client.Problem // why it was not done; nil: it was, or there was none
	Live     template.HTML   // the part that moves, as it is now
	Tag      string          // of that part
	Data     any
}

// parsePages parses the pages: each file is one, with the blocks of layout.html and parts.html. acts: for who may change
// something; for others they lead to no form.
func parsePages(files fs.FS, acts bool) map[string]*template.Template {
	own := template.FuncMap{"may": func() bool { return acts }, "page": func(what string, id any) string {
		if !acts && isOfKeys(what) {
			return ""
		}
		return pageOf(what, id)
	}}
	shared := template.Must(template.New("").Funcs(functions).Funcs(own).ParseFS(files, "layout.html", "parts.html"))
	names, _ := fs.Glob(files, "*.html")
	all := make(map[string]*template.Template)
	for _, name := range names {
		all[strings.TrimSuffix(name, ".html")] = template.Must(template.Must(shared.Clone()).ParseFS(files, name))
	}
	return all
}

// functions are those of templates, beside the standard ones.
var functions = template.FuncMap{
	"money": moneyText,
	"when": func(t time.Time) template.HTML {
		if t.IsZero() {
			return "–"
		}
		return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339) + `">` + t.UTC().Format("2006-01-02 15:04:05Z") + `</time>`) //nolint:gosec // no text of others
	},
	"link": func(page string, id uuid.UUID) template.HTML { // an id as a link to its page
		if id == uuid.Nil {
			return "–"
		}
		return template.HTML(`<a href="` + Path + "/" + page + "/" + id.String() + `"><code>` + id.String() + `</code></a>`) //nolint:gosec // no text of others
	},
	"now":     func() string { return time.Now().UTC().Format(time.RFC3339) },
	"newKey":  uuid.NewString,
	"words":   strings.Fields,
	"json":    func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err },
	"problem": func(code string) string { return fault.Code(code).Title() },
	"number":  message.NewPrinter(language.English).Sprint,
	"income":  incomeOf,
	"split":   strings.Split,
	"trim":    strings.TrimPrefix,
	"some":    func(id uuid.UUID) bool { return id != uuid.Nil },
}

func moneyText(amount int64, currency client.Currency) string {
	text := money.Currency(currency).Format(money.Amount(amount))
	for i := strings.IndexAny(text, ". ") - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// show answers with a page.
func (c *console) show(f *fiber.Ctx, page string, v view) error {
	if session := SessionOf(f); session.Client != "" {
		v.Operator = &session
	}
	v.Path, v.Done = f.Path(), f.Query("done") != ""
	if job, err := uuid.Parse(f.Query("job")); err == nil {
		v.Job = job.String()
	}
	return c.render(f, page, "layout", v)
}

// render answers with a block of a page.
func (c *console) render(f *fiber.Ctx, page, block string, data any) error {
	var b bytes.Buffer
	if err := c.pages[acts(f)][page].ExecuteTemplate(&b, block, data); err != nil {
		return err
	}
	f.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return f.Send(b.Bytes())
}
