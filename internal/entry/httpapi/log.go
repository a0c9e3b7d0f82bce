package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/httpconn"
	"triprize/internal/platform/telemetry"
)

// logged is what the log says of a request, as it becomes known.
type logged struct {
	who       call.Caller // its role is empty while the sender is not known
	operation string      // its id in the contract; empty: the request is none of these
	traced    string      // the trace that it is in, see traceparent; empty: none
	job       uuid.UUID   // that it has made, or made before with the same key; zero: none
	code      fault.Code  // of the problem that it got; empty: none
	err       error       // why it was not served, beside the code
}

type loggedKey struct{}

// loggedOf returns what is known of a request. A request that is refused before its route has
// none that is kept: ok is false.
func loggedOf(c *fiber.Ctx) (known *logged, ok bool) {
	if known, ok = c.Context().UserValue(loggedKey{}).(*logged); !ok {
		known = &logged{traced: traceparent(c)}
	}
	return known, ok
}

// longestPath is how much of a path the log has.
const longestPath = 200

// log writes the line of a request. Requests to pages and to /healthz, which say nothing of what
// was done, have none, unless they fail.
func (s *Server) log(c *fiber.Ctx, known *logged, status int, took time.Duration) {
	level, message := slog.LevelInfo, "request"
	isRead := c.Method() == http.MethodGet || c.Method() == http.MethodHead || c.Method() == http.MethodOptions
	ctx := context.Background()
	switch {
	case status == http.StatusInternalServerError:
		level, message = slog.LevelError, "request failed"
	case status == http.StatusServiceUnavailable && known.code != "":
		level, message = slog.LevelWarn, "request not served"
	case known.operation == "" && isRead && (status < http.StatusBadRequest || known.code == ""):
		return
	case status == http.StatusTooManyRequests, status >= http.StatusBadRequest && known.who.Role == "":
		ctx = telemetry.Sampled("")
	case isRead && status < http.StatusBadRequest: // a crowd's reads are one line for each key, operation and address
		ctx = telemetry.Sampled(known.who.KeyPrefix + " " + known.operation + " " + httpconn.AddressOf(c.Context().Conn()).String())
	}
	if !s.logger.Enabled(ctx, level) {
		return
	}
	var room [14]slog.Attr
	line := append(room[:0], slog.String("request_id", requestID(c)))
	add := func(name, value string) {
		if value != "" {
			line = append(line, slog.String(name, value))
		}
	}
	add("trace_id", telemetry.TraceID(known.traced))
	add("role", string(known.who.Role))
	if known.who.Role != resource.Anonymous { // it is its address
		add("client", known.who.Client)
	}
	add("key_prefix", known.who.KeyPrefix)
	if add("operation", known.operation); known.operation == "" {
		add("method", c.Method())
	}
	path := c.Path()
	add("path", path[:min(len(path), longestPath)])
	line = append(line, slog.Int("status", status))
	add("problem", string(known.code))
	if known.job != uuid.Nil {
		add("job", known.job.String())
	}
	line = append(line, telemetry.Took(took))
	add("address", httpconn.AddressOf(c.Context().Conn()).String())
	if known.err != nil {
		line = append(line, slog.Any("error", known.err))
	}
	s.logger.LogAttrs(ctx, level, message, line...) //nolint:sloglint // one of three constants
}
