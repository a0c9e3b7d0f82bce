package console

import "github.com/gofiber/fiber/v2"

// mountKeys registers …
func (c *console) mountKeys(r fiber.Router) {
}
