package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/platform/openapi"
)

const (
	deprecationHeader = "Deprecation" // RFC 9745
	sunsetHeader      = "Sunset"      // RFC 8594
)

// tellDeprecation returns a handler that puts on every answer of an operation since when it
// is deprecated, and when it will be gone, as the contract says.
func tellDeprecation(o *openapi.Operation) fiber.Handler {
	return func(c *fiber.Ctx) error {
		c.Set(deprecationHeader, "@"+strconv.FormatInt(o.DeprecatedAt.Unix(), 10))
		if !o.Sunset.IsZero() {
			c.Set(sunsetHeader, o.Sunset.In(time.UTC).Format(http.TimeFormat))
		}
		return c.Next()
	}
}
