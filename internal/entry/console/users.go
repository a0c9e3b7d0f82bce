package console

import (
	"context"
	"fmt"
	"net/url"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
	"triprize/internal/key"
)

// mountFind registers the page that finds, and what is done with a user, whose id is in the query: it may be any text.
func (c *console) mountFind(r fiber.Router) {
	c.page(r, "/find", "find", "Find", c.find)
	r.Get("/users/data", func(f *fiber.Ctx) error { // the API itself answers
		defer f.Path(f.Path()) // a page that says why not leads here again
		query := f.Request().URI().QueryArgs()
		user := f.Query("user")
		query.Del("user")
		f.Path("/v1/users/" + url.PathEscape(user) + "/data")
		f.Request().Header.Set(fiber.HeaderAccept, fiber.MIMEApplicationJSON)
		return f.RestartRouting()
	})
	c.act(r, key.Operator, "/users/erase", eraseUser)
}

func eraseUser(_ context.Context, f *fiber.Ctx, _ *client.Client) (action, run, error) {
	user := f.Query("user")
	a := action{Path: f.Path() + "?user=" + url.QueryEscape(user), Title: "Erase the user", Danger: true, Typed: oneLine(user), Back: Path + "/find",
		Text: "The id becomes a random pseudonym wherever it stands, texts beside it are emptied, and what only says what the user did is deleted: jobs, holds, metadata of wallets. Amounts, positions and draws stay. " +
			"What is open must end before. This cannot be undone: copy the data first, if the user has asked for it.",
		Facts:  []fact{{"User", fmt.Sprintf("%q", user)}},
		Fields: []field{reason, {Name: "/client", Label: "Client", Hint: "whose user it is; all: the user of each client that has the id", Type: "text", Value: f.Query("client"), Required: true}}}
	return a, func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
		job, err := api.EraseUser(ctx, user, client.Erasure{Client: typed.text("/client"), Reason: typed.text(reason.Name)}, options...)
		return typed.follow(job, err)
	}, nil
}
