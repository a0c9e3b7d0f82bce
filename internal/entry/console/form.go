package console

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
)

// form is what an operator has typed, by the JSON pointer of the member that it becomes, and what is wrong with it.
type form struct {
	values map[string]string
	Faults map[string]string
	parts  map[string][]string // what the elements of an array are called that a field becomes: line 3
	job    uuid.UUID           // that a command has become
	id     string              // of the thing that it is about, from the path
	part   uuid.UUID           // of that
	next   string              // the page that follows, if it is another than the action's
}

// newForm reads the form of a request.
func newForm(f *fiber.Ctx) *form {
	typed := &form{values: make(map[string]string), Faults: make(map[string]string), id: f.Params("id"), part: pathID(f.Params("part"))}
	for name, value := range f.Request().PostArgs().All() {
		typed.values[string(name)] = strings.ReplaceAll(string(value), "\r\n", "\n")
	}
	return typed
}

// Value is what was typed into a field, or else what it has before.
func (t form) Value(pointer string, otherwise any) any {
	if value, sent := t.values[pointer]; sent {
		return value
	}
	return otherwise
}

// Others is what has waited for a sign-in: the fields of another form.
func (t form) Others() map[string]string {
	others := maps.Clone(t.values)
	delete(others, "/key")
	delete(others, "/operator")
	return others
}

func (t *form) text(pointer string) string { return t.values[pointer] }

// number reads a whole number; an empty field is 0.
func (t *form) number(pointer string) int64 {
	text := strings.TrimSpace(t.values[pointer])
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
	text := strings.TrimSpace(t.values[pointer])
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
func (t *form) take(p *client.Problem) {
	var others []client.FieldError
	for _, wrong := range p.Errors {
		if wrong.Pointer == "Triprize-Reason" {
			wrong.Pointer = reason.Name
		}
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
	p.Errors = others
}
