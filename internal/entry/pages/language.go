package pages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"triprize/internal/domain/money"
	files "triprize/web/pages"
)

const english = "en"

// languages are those of the live page: each has a file of messages. The first is that of whoever prefers none of them.
var (
	languages = []string{english, "de", "ja"}
	matcher   = language.NewMatcher([]language.Tag{language.English, language.German, language.Japanese})
)

// languageOf returns the language that the address of a page names (?lang=), or that its reader prefers.
func languageOf(c *fiber.Ctx) string {
	if named := c.Query("lang"); slices.Contains(languages, named) {
		return named
	}
	c.Vary(fiber.HeaderAcceptLanguage)
	accepted := c.Get(fiber.HeaderAcceptLanguage)
	preferred, _, err := language.ParseAcceptLanguage(accepted[:min(len(accepted), 200)])
	if err != nil { // of what cannot be read the first may be readable
		accepted, _, _ = strings.Cut(accepted, ",")
		preferred, _, _ = language.ParseAcceptLanguage(accepted[:min(len(accepted), 200)])
	}
	_, i, _ := matcher.Match(preferred...)
	return languages[i]
}

// layout is what every page has.
type layout struct {
	Language, Title string
	Path            string        // of a page in several languages
	Live            template.HTML // the part that moves, as it is now
	InFrame         bool          // it may stand in a page of others
	Data            any
}

// parse parses the templates, for each language.
func (p *pages) parse() error {
	p.templates, p.messages = make(map[string]*template.Template), make(map[string]map[string]string)
	names, err := fs.Glob(files.Files, "*.html")
	if err != nil {
		return err
	}
	for _, language := range languages {
		source, err := files.Files.ReadFile("messages/" + language + ".json")
		if err != nil {
			return err
		}
		var texts map[string]string
		if err := json.Unmarshal(source, &texts); err != nil {
			return fmt.Errorf("messages/%s.json: %w", language, err)
		}
		p.messages[language] = texts
		for _, name := range names {
			set, err := template.New("").Funcs(p.functions(language)).ParseFS(files.Files, "layout.html", name)
			if err != nil {
				return err
			}
			p.templates[language+"/"+strings.TrimSuffix(path.Base(name), ".html")] = set
		}
	}
	return nil
}

func (p *pages) render(language, page string, l layout) ([]byte, error) {
	l.Language = language
	return p.execute(language, page, "layout", l)
}

func (p *pages) execute(language, page, block string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := p.templates[language+"/"+page].ExecuteTemplate(&b, block, data)
	return b.Bytes(), err
}

// functions are those of templates. Numbers, amounts and times are elements that say their value, so that the script
// of a page can write them as its reader does.
func (p *pages) functions(name string) template.FuncMap {
	printer := message.NewPrinter(language.Make(name))
	number := func(n int) template.HTML {
		return template.HTML(fmt.Sprintf(`<data value="%d">%s</data>`, n, printer.Sprint(n))) //nolint:gosec // no text of others
	}
	return template.FuncMap{
		"prose":  prose,
		"number": number,
		"text": func(key string, parts ...any) (template.HTML, error) {
			text, known := p.messages[name][key]
			if !known {
				return "", fmt.Errorf("there is no message %q in %s", key, name)
			}
			for i, part := range parts {
				switch part := part.(type) {
				case template.HTML:
				case int:
					parts[i] = number(part)
				case *int:
					parts[i] = number(*part)
				case *string:
					parts[i] = "<bdi>" + template.HTMLEscapeString(*part) + "</bdi>"
				default:
					return "", fmt.Errorf("a message cannot have a part of type %T", part)
				}
			}
			return template.HTML(fmt.Sprintf(text, parts...)), nil //nolint:gosec // ours, and escaped
		},
		"money": func(amount int64, currency string) template.HTML {
			written := money.Currency(currency).Format(money.Amount(amount))
			value, _, _ := strings.Cut(written, " ")
			return template.HTML(`<data value="` + value + `" data-currency="` + currency + `">` + written + `</data>`) //nolint:gosec // no text of others
		},
		"when":      func(t time.Time) template.HTML { return timeElement(t, "") },
		"left":      func(t time.Time) template.HTML { return timeElement(t, " data-left") }, // and how much time is left
		"languages": func() []string { return languages },
		"named":     func(code string) string { return p.messages[code]["language"] },
	}
}

func timeElement(t time.Time, attribute string) template.HTML {
	return template.HTML("<time" + attribute + t.UTC().Format(` datetime="2006-01-02T15:04:05Z">2006-01-02 15:04 UTC</time>`)) //nolint:gosec // no text of others
}
