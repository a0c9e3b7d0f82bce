package console

import "github.com/gofiber/fiber/v2"

// mountWallets registers …
func (c *console) mountWallets(r fiber.Router) {
}
