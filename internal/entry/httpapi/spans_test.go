package httpapi

import (
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// A worker may trace where the api does not. It follows what the api has stored.
func TestTheSampledFlagOfACallerIsNotStoredWhileTracingIsOff(t *testing.T) {
	t.Parallel()
	const sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
	r := &fasthttp.RequestCtx{}
	r.Request.Header.Set(traceParentHeader, sent+"1")
	if got := traceparent(fiber.New().AcquireCtx(r)); got != sent+"0" {
		t.Errorf("stored is %q", got)
	}
}
