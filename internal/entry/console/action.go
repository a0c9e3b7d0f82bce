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
	Facts  []fact // what it is about, and what it changes
	Fields []field
	Typed  string // what must be typed before a command that is hard to undo; empty: nothing
	Back   string // the page that follows

	Page    string // its template, if it is another than action
	Preview any    // what it would make; nil: nobody has asked

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

// fact is what must be known before a command.
type fact struct{ Name, Value string }

// reason is the field for why an operator does something.
var reason = field{Name: "/reason", Label: "Reason", Hint: "for the trail", Type: "text", Required: true}

// command does what an action says. The request has the idempotency key of the form, so that a form that is sent
// twice is done once.
type command func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error

// typedField has what is typed to confirm an action.
const typedField = "typed"

// act registers an action. form returns it for a request, and the command.
func (c *console) act(r fiber.Router, path, done string, form func(f *fiber.Ctx) (action, command, error)) {
	r.Get(path, func(f *fiber.Ctx) error {
		a, _, err := form(f)
		if err != nil {
			return err
		}
		return c.show(f, cmp.Or(a.Page, "action"), view{Title: a.Title, Data: a})
	})
	r.Post(path, func(f *fiber.Ctx) error {
		a, do, err := form(f)
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
			typed.values["once"] = cmp.Or(typed.text("once"), uuid.NewString())
			ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
			defer cancel()
			err = do(ctx, c.api(f), typed, client.WithKey(typed.text("once")), client.WithReason(typed.text(reason.Name)))
			if err == nil && len(typed.Faults) == 0 {
				to := cmp.Or(typed.next, a.Back) + "?done=" + done
				if typed.job != uuid.Nil {
					to += "&job=" + typed.job.String()
				}
				return f.Redirect(to, http.StatusSeeOther)
			}
		}
		p := &problem{Status: http.StatusBadRequest, Detail: "Nothing was done: see the marked fields."}
		if err != nil {
			*p = c.problemOf(err)
			typed.take(p)
		}
		if p.Status >= http.StatusInternalServerError || p.Status == http.StatusTooManyRequests {
			a.Once = typed.text("once") // otherwise another try is another request
		}
		a.Form = typed
		return c.show(f.Status(p.Status), cmp.Or(a.Page, "action"), view{Title: a.Title, Problem: p, Form: typed, Data: a})
	})
}

// follow takes the job that a command has become: the page that follows links to it. A job that has failed is a refusal.
func (t *form) follow(job client.Job, err error) error {
	if err == nil && job.State == client.JobStateFailed && job.Problem != nil {
		failed := client.Error{Problem: *job.Problem}
		failed.Status = http.StatusConflict // it stays failed: another try is another job
		return &failed
	}
	t.job = job.ID
	return err
}

// said is what a page says after a command, by the name in its address: an address has no text of others.
var said = map[string]string{
	"revoked": "The key is revoked: it stops working everywhere within five seconds.", "enable": "The endpoint is enabled.", "disable": "The endpoint is disabled.",
	"test": "The test event is on its way.", "again": "The event is sent again.", "replay": "At most 1,000 events are sent again, the oldest first, 20 a second. What is left can be replayed afterwards.",
	"published": "The campaign is published.", "paused": "The sale is paused.", "resumed": "The sale goes on.",
	"saved": "The campaign is saved.", "created": "The campaign is created: it is a draft until it is published.",
	"blocked": "The positions are blocked.", "unblocked": "The positions are on sale again.",
	"round": "The round is verified. The draw begins within half a minute.", "draw": "The draw is requested.",
	"cancelled": "The cancellation is accepted. The page follows the refunds.", "voided": "The void is accepted. If it must be announced, the page says until when.",
	"asked": "Accepted. The page follows what happens.", "done": "Done.", "swept": "The sweep has run: its report is below.",
}
