package problemdocs

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"triprize/internal/domain/fault"
)

//go:embed templates problems.yaml
var files embed.FS

// Explanation is what the manual says about a code, for the developer of a client.
// problems.yaml says what its members mean.
type Explanation struct {
	Happened   string
	Retry      string
	Remedy     []string // steps, in order
	Occurrence example  `yaml:"example"`
}

// explanations reads problems.yaml, once.
var explanations = sync.OnceValue(func() (all map[fault.Code]Explanation) {
	source, err := files.ReadFile("problems.yaml")
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	decoder.KnownFields(true)
	if err = errors.Join(err, decoder.Decode(&all)); err != nil {
		panic(err) // the file is built in
	}
	return all
})

// Explain returns the explanation of a code; that of an internal error for an
// unknown code.
func Explain(c fault.Code) Explanation {
	if e, ok := explanations()[c]; ok {
		return e
	}
	return explanations()[fault.InternalError]
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{"prose": prose}).ParseFS(files, "templates/*"))

// problemPage is the data of the template of a code's page.
type problemPage struct {
	Explanation
	Title   string // of the page, and its heading
	Group   group
	Code    fault.Code
	Status  string // "409 Conflict"
	Arrives string // where the client finds it
	Example sample
}

// ProblemPage writes the page about code as HTML. status is the HTTP status of the
// code. For an unknown code it returns an error and writes nothing.
func ProblemPage(w io.Writer, code fault.Code, status int) error {
	page, err := newProblemPage(code, status)
	if err != nil {
		return fmt.Errorf("problemdocs.ProblemPage: %w", err)
	}
	return render(w, "problem.html", page)
}

func newProblemPage(code fault.Code, status int) (problemPage, error) {
	if !code.Known() {
		return problemPage{}, fmt.Errorf("there is no problem %q", code)
	}
	e := Explain(code)
	shown, err := e.Occurrence.sample(code, status)
	return problemPage{Explanation: e, Title: code.Title(), Group: groupOf(code), Code: code,
		Status: statusLine(status), Arrives: e.Occurrence.Where.arrives(status), Example: shown}, err
}

// render writes a whole page; if the template fails, nothing.
func render(w io.Writer, name string, data any) error {
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, name, data); err != nil {
		return fmt.Errorf("problemdocs: %s: %w", name, err)
	}
	_, err := page.WriteTo(w)
	return err
}

// statusLine returns a status as in the first line of an answer: "409 Conflict".
func statusLine(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// span is a piece of a sentence.
type span struct {
	Text string
	Code bool // to be shown as code
}

// prose splits a sentence of problems.yaml: text in `backquotes` is code.
func prose(sentence string) []span {
	var spans []span
	for i, text := range strings.Split(sentence, "`") {
		if text != "" {
			spans = append(spans, span{Text: text, Code: i%2 == 1})
		}
	}
	return spans
}
