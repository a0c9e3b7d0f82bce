package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/fault"
	"triprize/internal/key"
	"triprize/internal/platform/openapi"
)

// action is a command of an operator, as a form: it stands alone on a page, where it is shown again if it was refused.
type action struct {
	Path    string // where the form is sent
	Title   string // what it does: Pause the sale
	Text    string // what happens then, and what cannot be undone
	Danger  bool   // it cannot be undone
	Facts   []fact // what it is about, and what it changes
	Fields  []field
	Seen    string              // a hash of what the form shows, and what is fixed by the command; empty: nothing is
	Typed   string              // what must be typed before a command that is hard to undo; empty: nothing
	Back    string              // the page that follows
	IsDraft bool                // of a campaign: it has a preview
	Preview any                 // what it would make; nil: nobody has asked
	Layers  []client.LayerDraft // of a campaign, if its form cannot hold them

	Form form   // what was typed
	Once string // the idempotency key of its next try; empty: a new one
}

// field is an input of a form. Name is the JSON pointer of the member of the request that it becomes.
type field struct {
	Name, Label, Hint string
	Type              string // of input; textarea, select or checkbox. hidden: what the form shows, which the request states
	Value             any
	Options           []string // of a select
	Required          bool

	member openapi.Member // of a campaign
}

// fact is what must be known before a command.
type fact struct{ Name, Value string }

// reason is the field for why an operator does something; each action has it.
var reason = field{Name: "/reason", Label: "Reason", Hint: "for the trail", Type: "text", Required: true}

// readers are those who can read the reasons of commands, beside operators.
var readers = map[string]string{"/campaigns/:id/cancel": "public", "/campaigns/:id/void": "public", "/purchases/:id/cancel": "the buyer can read it",
	"/purchases/:id/cancel-positions": "the buyer can read it", "/refunds/:id/resolve": "the buyer can read it", "/campaigns/:id/refunds/resolve": "the buyers can read it"}

// run does what an action says. The request has the idempotency key of the form, so that a form that is sent
// twice is done once.
type run func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error

// act registers an action of a role. show returns it for a request, and the command.
func (c *console) act(r fiber.Router, role key.Role, path string, show func(ctx context.Context, f *fiber.Ctx, api *client.Client) (action, run, error)) {
	handle := func(f *fiber.Ctx) error {
		if !SessionOf(f).Has(role) {
			return fault.New(fault.Forbidden, "this needs the role %s", role)
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout+time.Second)
		defer cancel()
		api := c.api(f)
		a, do, err := show(ctx, f, api)
		if err != nil {
			return err
		}
		if f.Method() != http.MethodPost {
			return c.show(f, "action", view{Title: a.Title, Data: a})
		}
		typed := newForm(f)
		if typed.text("form") != "" { // it has waited for a sign-in
			a.Form, a.Once = *typed, typed.text("once")
			return c.show(f, "action", view{Title: a.Title, Data: a})
		}
		if a.IsDraft && typed.text("preview") != "" {
			draft := draftOf(typed)
			if a.Layers != nil {
				draft.Layers = a.Layers
			}
			a.Form, a.Once, a.Preview, a.Facts = *typed, typed.text("once"), draft, summary(draft)
			return c.show(f, "action", view{Title: a.Title, Data: a})
		}
		err = c.perform(f, a, do, typed)
		if err == nil && len(typed.Faults) == 0 {
			c.fragments.Clear() // the page that follows shows what was done
			to := cmp.Or(typed.next, a.Back) + "?done=1"
			if typed.job != uuid.Nil {
				to += "&job=" + typed.job.String()
			}
			return f.Redirect(to, http.StatusSeeOther)
		}
		if asked, ok := errors.AsType[*client.ApprovalRequested](err); ok {
			c.fragments.Clear()
			return f.Redirect(Path+"/approvals/"+asked.Approval.ID.String(), http.StatusSeeOther)
		}
		p := &client.Problem{Status: http.StatusBadRequest, Detail: "Nothing was done: see the marked fields."}
		if err != nil {
			*p = c.problemOf(err)
			typed.take(p)
		}
		isReused := p.Code == string(fault.KeyReused)
		if isReused {
			p.Detail = "An earlier try of this form was accepted as it was then. See what it did before you open the form again."
		}
		if p.Status >= http.StatusInternalServerError || p.Status == http.StatusTooManyRequests || isReused {
			a.Once = typed.text("once") // otherwise another try is another request
		}
		a.Form = *typed
		return c.show(f.Status(p.Status), "action", view{Title: a.Title, Problem: p, Data: a})
	}
	r.Get(path, handle)
	r.Post(path, handle)
}

// perform does what a form says, unless one of its fields has a fault.
func (c *console) perform(f *fiber.Ctx, a action, do run, typed *form) error {
	if a.Typed != "" && oneLine(typed.text("typed")) != a.Typed {
		typed.Faults["typed"] = "type exactly: " + a.Typed
	}
	for _, one := range a.Fields {
		if one.Required && strings.TrimSpace(typed.text(one.Name)) == "" {
			typed.Faults[one.Name] = "is required"
		}
	}
	if len(typed.Faults) > 0 {
		return nil
	}
	if seen := typed.text("seen"); seen != "" && seen != a.Seen && (a.Seen != "" || a.Danger) { // a plain form that is sent twice is done once
		delete(typed.values, "seen")
		return fault.New(fault.StateConflict, "what the form shows has changed since you opened it: read it again")
	}
	typed.values["once"] = cmp.Or(typed.text("once"), uuid.NewString())
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout+time.Second)
	defer cancel()
	soon := client.WithWait(2 * time.Second) // a job that fails at once is refused where it was typed
	return do(ctx, c.api(f), typed, client.WithKey(typed.text("once")), client.WithReason(typed.text(reason.Name)), soon)
}

// oneLine returns a text as a browser shows it.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// command is an action about the thing whose id is in its path.
type command struct {
	path   string // /things/:id/name; a part of the thing may follow as :part
	states string // of a campaign in which it can be done; active: and not paused
	action        // :id in its title, and in what must be typed, is the id

	// about adds what is known of the thing; nil: nothing.
	about func(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error
	do    run
}

// actOn registers commands of a role. What follows is the page of the thing, unless they say another.
func (c *console) actOn(r fiber.Router, role key.Role, commands []command) {
	for _, d := range commands {
		c.act(r, role, d.path, func(ctx context.Context, f *fiber.Ctx, api *client.Client) (a action, do run, err error) {
			id := f.Params("id")
			a = d.action
			a.Path, a.Title, a.Typed = f.Path(), strings.ReplaceAll(a.Title, ":id", id), strings.ReplaceAll(a.Typed, ":id", id)
			a.Back = cmp.Or(a.Back, Path+"/"+strings.Split(d.path, "/")[1]+"/"+pathID(id).String())
			if d.about != nil {
				err = d.about(ctx, api, pathID(id), &a)
			}
			why := reason
			why.Hint = cmp.Or(readers[d.path], why.Hint)
			a.Fields = append([]field{why}, a.Fields...) // on a phone, too, it is seen at once
			return a, d.do, err
		})
	}
}

// plain does a command without a body.
func plain[T any](call func(*client.Client, context.Context, uuid.UUID, ...client.CallOption) (T, error)) run {
	return func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
		done, err := call(api, ctx, pathID(typed.id), options...)
		return typed.follow(done, err)
	}
}

// filled does a command with a body from the form.
func filled[B, T any](call func(*client.Client, context.Context, uuid.UUID, B, ...client.CallOption) (T, error), from func(typed *form) B) run {
	return func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
		body := from(typed)
		if len(typed.Faults) > 0 {
			return nil
		}
		done, err := call(api, ctx, pathID(typed.id), body, options...)
		return typed.follow(done, err)
	}
}

// reasoned does a command whose body is the reason.
func reasoned[B ~struct {
	Reason string `json:"reason"`
}, T any](call func(*client.Client, context.Context, uuid.UUID, B, ...client.CallOption) (T, error)) run {
	return filled(call, func(typed *form) B { return B{Reason: typed.text(reason.Name)} })
}

// follow takes the job that a command may have become: the page that follows links to it. A job that has failed is a refusal.
func (t *form) follow(done any, err error) error {
	job, _ := done.(client.Job)
	if err == nil && job.State == client.JobStateFailed && job.Problem != nil {
		failed := client.Error{Problem: *job.Problem}
		failed.Status = http.StatusConflict // it stays failed: another try is another job
		return &failed
	}
	t.job = job.ID
	return err
}
