package console

import "github.com/gofiber/fiber/v2"

// mountFind registers …
func (c *console) mountFind(r fiber.Router) {
}
