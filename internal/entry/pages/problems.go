package pages

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/resource"
)

//go:embed problems.yaml
var problemTexts []byte

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
	var texts map[fault.Code]problem
	decoder := yaml.NewDecoder(bytes.NewReader(problemTexts))
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
