package console

import "github.com/gofiber/fiber/v2"

// mountTrail registers …
func (c *console) mountTrail(r fiber.Router) {
}
