package console

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
)

// mountCampaigns registers the list of campaigns, their pages, and the commands about them.
func (c *console) mountCampaigns(r fiber.Router) {
	c.livePage(r, "/campaigns", "campaigns", "", "Campaigns", func(ctx context.Context, api *client.Client, _ string) (any, error) {
		return api.ListCampaigns(ctx, client.ListCampaignsParams{Limit: 50})
	}, nil)
	c.livePage(r, "/campaigns/:id", "campaign", "id", "Campaign", func(ctx context.Context, api *client.Client, id string) (any, error) {
		campaign, err := uuid.Parse(id)
		if err != nil {
			return nil, &client.Error{Problem: client.Problem{Status: http.StatusNotFound, Code: client.CodeNotFound, Detail: "this is not the id of a campaign"}}
		}
		return api.GetCampaign(ctx, campaign)
	}, nil)
}
