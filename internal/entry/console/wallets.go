package console

import (
	"context"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
)

// readWallet reads a wallet and a page of its history.
func readWallet(ctx context.Context, api *client.Client, id uuid.UUID, cursor string) (any, error) {
	var shown struct {
		client.Wallet
		History client.WalletEventPage
	}
	var err error
	if shown.Wallet, err = api.GetWallet(ctx, id); err == nil {
		shown.History, err = api.ListWalletEvents(ctx, id, client.ListWalletEventsParams{Cursor: cursor, Limit: 50})
	}
	return shown, err
}

// mountWallets registers the page of a wallet and its credit. Older pages of its history do not move.
func (c *console) mountWallets(r fiber.Router) {
	c.livePage(r, "/wallets/:id", "wallet", "id", "Wallet", func(ctx context.Context, api *client.Client, id string) (any, error) {
		return readWallet(ctx, api, pathID(id), "")
	}, func(f *fiber.Ctx, v *view) (err error) {
		if cursor := f.Query("cursor"); cursor != "" {
			ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
			defer cancel()
			v.Data, err = readWallet(ctx, c.api(f), pathID(f.Params("id")), cursor)
		}
		return err
	})
	fields := []field{{Name: "/amount", Label: "Amount", Type: "number", Required: true},
		{Name: "/reference", Label: "Reference", Hint: "used once: a second credit with it is refused", Type: "text"},
		{Name: "/description", Label: "Description", Hint: "stands in the history of the wallet", Type: "text"}}
	c.actOn(r, deed{"/wallets/:id/credit", action{Title: "Credit the wallet", Text: "Money from outside is added to the balance of ", Back: Path + "/wallets/"},
		func(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
			wallet, err := api.GetWallet(ctx, id)
			a.Text += moneyText(wallet.Balance, wallet.Currency) + "."
			a.Fields = append([]field(nil), fields...)
			a.Fields[0].Hint = "in minor units: 1234 are " + moneyText(1234, wallet.Currency)
			return err
		}, filled((*client.Client).CreditWallet, func(typed *form) client.Movement {
			return client.Movement{Amount: typed.number("/amount"), Reference: typed.text("/reference"), Description: typed.text("/description")}
		})})
}
