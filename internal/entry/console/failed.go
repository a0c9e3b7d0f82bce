package console

import "github.com/gofiber/fiber/v2"

// mountFailed registers …
func (c *console) mountFailed(r fiber.Router) {
}
