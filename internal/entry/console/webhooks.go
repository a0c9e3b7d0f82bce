package console

import "github.com/gofiber/fiber/v2"

// mountWebhooks registers …
func (c *console) mountWebhooks(r fiber.Router) {
}
