package console

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
)

// mountKeys registers the list of API keys, and their revocation.
func (c *console) mountKeys(r fiber.Router) {
	r.Get("/keys", func(f *fiber.Ctx) error {
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
		defer cancel()
		list, err := c.api(f).ListKeys(ctx)
		if err != nil {
			return err
		}
		return c.show(f, "keys", view{Title: "API keys", Data: list.Keys})
	})
	c.act(r, "/keys/:prefix/revoke", "revoked", func(f *fiber.Ctx) (action, command, error) {
		prefix := f.Params("prefix")
		successor := field{Name: "/transfer_endpoints_to", Label: "Transfer its webhook endpoints to", Hint: "the prefix of another key of its client; empty: they are disabled", Type: "text"}
		return action{Path: Path + "/keys/" + prefix + "/revoke", Title: "Revoke the key " + prefix, Danger: true, Typed: prefix, Fields: []field{reason, successor}, Back: Path + "/keys",
				Text: "The key stops working everywhere within five seconds, and so do its streams and its sessions of this console. This cannot be undone."},
			func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
				_, err := api.RevokeKey(ctx, prefix, client.KeyRevocation{TransferEndpointsTo: typed.text(successor.Name)}, options...)
				return err
			}, nil
	})
}
