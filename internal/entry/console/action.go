package console

import (
	"cmp"
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
)

// action is a command of an operator, as a form: it stands on the page of what it is about, and alone on a page of
// its own where it is shown again if it was refused.
type action struct {
	Path   string // where the form is sent
	Title  string // what it does: Pause the sale
	Text   string // what happens then, and what cannot be undone
	Danger bool   // it cannot be undone
	Fields []field
	Typed  string // what must be typed before a command that is hard to undo; empty: nothing
	Back   string // the page that follows

	Form *form  // what was typed; nil: nothing yet
	Once string // the idempotency key of its next try; empty: a new one
}

// field is an input of a form. Name is the JSON pointer of the member of the request that it becomes.
type field struct {
	Name, Label, Hint string
	Type              string // of input; textarea, select or checkbox
	Value             any
	Options           []string // of a select
	Required          bool
}

// reason is the field for why an operator does something.
var reason = field{Name: "/reason", Label: "Reason", Hint: "for the trail", Type: "text", Required: true}

// command does what an action says. The request has the idempotency key of the form, so that a form that is sent
// twice is done once.
type command func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error

// typedField has what is typed to confirm an action.
const typedField = "typed"

// act registers an action. make returns it for a request, and the command.
func (c *console) act(r fiber.Router, path, done string, make func(f *fiber.Ctx) (action, command, error)) {
	r.Get(path, func(f *fiber.Ctx) error {
		a, _, err := make(f)
		if err != nil {
			return err
		}
		return c.show(f, "action", view{Title: a.Title, Data: a})
	})
	r.Post(path, func(f *fiber.Ctx) error {
		a, do, err := make(f)
		if err != nil {
			return err
		}
		typed := newForm(f)
		if a.Typed != "" && typed.text(typedField) != a.Typed {
			typed.Faults[typedField] = "type exactly: " + a.Typed
		}
		for _, one := range a.Fields {
			if one.Required && typed.text(one.Name) == "" {
				typed.Faults[one.Name] = "is required"
			}
		}
		if len(typed.Faults) == 0 {
			once := cmp.Or(typed.text("once"), uuid.NewString())
			ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
			defer cancel()
			err = do(ctx, c.api(f), typed, client.WithKey(once), client.WithReason(typed.text(reason.Name)))
			if err == nil && len(typed.Faults) == 0 {
				return f.Redirect(a.Back+"?done="+done, http.StatusSeeOther)
			}
			a.Once = once
		}
		p := &problem{Status: http.StatusBadRequest, Detail: "Nothing was done: see the marked fields."}
		if err != nil {
			refused := c.problemOf(err)
			p = &refused
			typed.take(p)
		}
		if p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests {
			a.Once = "" // another try is another request
		}
		a.Form = typed
		return c.show(f.Status(p.Status), "action", view{Title: a.Title, Problem: p, Form: typed, Data: a})
	})
}

// said is what a page says after a command, by the name in its address: an address has no text of others.
var said = map[string]string{
	"published": "The campaign is published.", "paused": "The sale is paused.", "resumed": "The sale goes on.",
	"saved": "The campaign is saved.", "created": "The campaign is created: it is a draft until it is published.",
	"asked": "Accepted. The page follows what happens.", "done": "Done.",
}
