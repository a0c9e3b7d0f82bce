package console

import "github.com/gofiber/fiber/v2"

// mountWaiting registers …
func (c *console) mountWaiting(r fiber.Router) {
}
