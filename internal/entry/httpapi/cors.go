package httpapi

import (
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/cors"
)

// preflightKept is how long a browser may keep the answer to a preflight.
const preflightKept = time.Hour

// The headers that scripts of other origins may send and read, beside those of every script.
var (
	mayBeSent = []string{fiber.HeaderAuthorization, fiber.HeaderContentType, idempotencyKeyHeader, fiber.HeaderIfMatch, fiber.HeaderIfNoneMatch,
		"Last-Event-ID", "Prefer", requestIDHeader, "traceparent", "tracestate"}
	mayBeRead = []string{fiber.HeaderLocation, fiber.HeaderETag, fiber.HeaderRetryAfter, requestIDHeader, "Idempotent-Replayed", "Preference-Applied",
		"RateLimit", "RateLimit-Policy", fiber.HeaderWWWAuthenticate}
)

// shareAcrossOrigins lets scripts of the allowed origins call the API; browsers keep it from
// all others. Their users have tokens, which scripts send themselves: there are no cookies, and
// no credentials that a browser adds. It stands before everything that may refuse a request, so
// that a script can read why. A preflight is answered here: it costs no look at anything.
func shareAcrossOrigins(allows func(origin string) bool) fiber.Handler {
	return cors.New(cors.Config{
		AllowOriginsFunc: allows,
		AllowMethods:     strings.Join([]string{fiber.MethodGet, fiber.MethodHead, fiber.MethodPost, fiber.MethodPatch, fiber.MethodDelete}, ","),
		AllowHeaders:     strings.Join(mayBeSent, ","),
		ExposeHeaders:    strings.Join(mayBeRead, ","),
		MaxAge:           int(preflightKept.Seconds()),
	})
}
