package console

import "github.com/gofiber/fiber/v2"

// mountDrafts registers …
func (c *console) mountDrafts(r fiber.Router) {
}
