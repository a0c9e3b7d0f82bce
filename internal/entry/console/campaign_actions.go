package console

import "github.com/gofiber/fiber/v2"

// mountCampaignActions registers …
func (c *console) mountCampaignActions(r fiber.Router) {
}
