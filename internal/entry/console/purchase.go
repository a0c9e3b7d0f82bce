package console

import "github.com/gofiber/fiber/v2"

// mountPurchases registers …
func (c *console) mountPurchases(r fiber.Router) {
}
