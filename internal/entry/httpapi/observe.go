package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/token"
	"triprize/internal/platform/tracing"
)

const (
	requestIDHeader      = "X-Request-ID"
	idempotencyKeyHeader = "Idempotency-Key"
	traceParentHeader    = "traceparent"
)

// keptRequestID is what the id of a request may be that its sender has chosen: it is in
// logs, so it has nothing that could be taken for more than an id.
var keptRequestID = regexp.MustCompile(`^[A-Za-z0-9._~:/+=@-]{1,128}$`)

// requestID returns the id of a request, which is also in the log: the one that its sender
// has chosen, or a new one. The first call decides: in observe, or when a request is
// refused before that.
func requestID(c *fiber.Ctx) string {
	if id, ok := c.Locals(requestIDHeader).(string); ok {
		return id
	}
	id := c.Get(requestIDHeader)
	if !keptRequestID.MatchString(id) {
		id = uuid.NewString()
	}
	c.Locals(requestIDHeader, id)
	c.Set(requestIDHeader, id)
	return id
}

// httpMetrics counts requests by route, not by path: clients choose paths, and their
// number has no bound.
type httpMetrics struct {
	duration      *prometheus.HistogramVec
	refusedTokens *prometheus.CounterVec
	signInsByKey  prometheus.Counter
}

func newHTTPMetrics(registry prometheus.Registerer, inFlight *atomic.Int64, waiting, streams func() int) *httpMetrics {
	m := &httpMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_http_request_duration_seconds", Help: "Duration of HTTP requests by method, route and status; with Prefer: wait the wait is included.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}, []string{"method", "route", "status"}),
		refusedTokens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_tokens_refused_total",
			Help: "Tokens of users and the public that were refused, by reason: the claim that is wrong, or what is wrong with the signature."}, []string{"reason"}),
		signInsByKey: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_console_sign_ins_by_key_total",
			Help: "Sign-ins to the console by a key where accounts sign in (console.sign_in: both)."}),
	}
	telemetry.Expect(m.refusedTokens, token.Reasons()...)
	registry.MustRegister(m.duration, m.refusedTokens, m.signInsByKey, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "triprize_http_requests_in_flight", Help: "HTTP requests being served."},
		func() float64 { return float64(inFlight.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_jobs_waited_for", Help: "Jobs that clients of this process wait for."},
			func() float64 { return float64(waiting()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_streams_open", Help: "Event streams that clients of this process have open."},
			func() float64 { return float64(streams()) }))
	return m
}

// observe gives every request an id, counts it and logs it.
func (s *server) observe(c *fiber.Ctx) error {
	if _, observed := callOf(c); observed { // the console has sent it on: it is still one request
		return c.Next()
	}
	start, known := time.Now(), &call.Call{RequestID: requestID(c)}
	c.Context().SetUserValue(callKey{}, known)
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	endSpan := beginSpan(c, known)
	known.Traceparent = traceparent(c)
	if err := c.Next(); err != nil {
		if err := c.App().ErrorHandler(c, err); err != nil {
			return err
		}
	}
	took, status, route := time.Since(start), c.Response().StatusCode(), c.Route().Path
	endSpan(route, status)
	s.metrics.duration.WithLabelValues(c.Method(), route, strconv.Itoa(status)).Observe(took.Seconds())
	s.log(c, known, status, took)
	return nil
}

const (
	notStored = "no-store"
	nosniff   = "nosniff"
)

// protect sets the headers of every answer. An answer for one caller only is kept
// by nobody, unless its handler says otherwise.
func protect(c *fiber.Ctx) error {
	c.Set(fiber.HeaderXContentTypeOptions, nosniff)
	err := c.Next()
	if len(c.Response().Header.Peek(fiber.HeaderCacheControl)) == 0 {
		c.Set(fiber.HeaderCacheControl, notStored)
	}
	if h := &c.Response().Header; bytes.HasPrefix(h.ContentType(), []byte("text/html")) && len(h.Peek(fiber.HeaderReferrerPolicy)) == 0 { // its address may name what only its reader knows
		c.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	}
	return err
}

type callKey struct{}

// callOf returns what is known of a request. A request that is refused before its route has
// nothing that is kept: ok is false.
func callOf(c *fiber.Ctx) (known *call.Call, ok bool) {
	if known, ok = c.Context().UserValue(callKey{}).(*call.Call); !ok {
		known = &call.Call{Traceparent: traceparent(c)}
	}
	return known, ok
}

// longestPath is how much of a path the log has.
const longestPath = 200

// log writes the line of a request. Requests to pages and to /healthz, which say nothing of what
// was done, have none, unless they fail.
func (s *server) log(c *fiber.Ctx, known *call.Call, status int, took time.Duration) {
	level, message := slog.LevelInfo, "request"
	isRead := c.Method() == http.MethodGet || c.Method() == http.MethodHead || c.Method() == http.MethodOptions
	ctx := context.Background()
	switch {
	case status == http.StatusInternalServerError:
		level, message = slog.LevelError, "request failed"
	case status == http.StatusServiceUnavailable && known.Code != "":
		if level, message = slog.LevelWarn, "request not served"; known.Operation == "" { // a page, for which a crowd may ask
			ctx = telemetry.Sampled("")
		}
	case known.Operation == "" && isRead && (status < http.StatusBadRequest || known.Code == ""):
		return
	case status == http.StatusTooManyRequests, status >= http.StatusBadRequest && known.Role == "":
		ctx = telemetry.Sampled("")
	case isRead && status < http.StatusBadRequest: // a crowd's reads are one line for each key, operation and address
		ctx = telemetry.Sampled(known.KeyPrefix + " " + known.Operation + " " + s.addressOf(c))
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
	add("trace_id", tracing.TraceID(known.Traceparent))
	add("role", string(known.Role))
	if known.Role != resource.Anonymous { // it is its address
		add("client", known.Client)
	}
	add("key_prefix", known.KeyPrefix)
	if add("operation", known.Operation); known.Operation == "" {
		add("method", c.Method())
	}
	path := c.Path()
	add("path", path[:min(len(path), longestPath)])
	line = append(line, slog.Int("status", status))
	add("problem", string(known.Code))
	if known.Job != uuid.Nil {
		add("job", known.Job.String())
	}
	line = append(line, telemetry.Took(took))
	add("address", s.addressOf(c))
	if known.Err != nil {
		line = append(line, slog.Any("error", known.Err))
	}
	s.logger.LogAttrs(ctx, level, message, line...) //nolint:sloglint // one of three constants
}

// beginSpan begins the span of a request for an operation. end ends it, once the answer is known;
// that of a stream, once it begins.
func beginSpan(c *fiber.Ctx, known *call.Call) (end func(route string, status int)) {
	if !tracing.On() || !strings.HasPrefix(c.Path(), "/v1/") {
		return func(string, int) {}
	}
	_, span := tracing.Serve(context.Background(), tracing.Traceparent(c.Get(traceParentHeader)))
	if span == (tracing.Span{}) {
		return func(string, int) {}
	}
	known.Span = span
	return func(route string, status int) {
		if !span.Recorded() {
			return
		}
		method := c.Method()
		span.Rename(method + " " + route)
		span.Set("http.request.method", method, "http.route", route, "http.response.status_code", strconv.Itoa(status), tracing.RequestID, requestID(c))
		if known.Job != uuid.Nil {
			span.Set(tracing.JobID, known.Job.String())
		}
		var err error
		if status >= http.StatusInternalServerError {
			err = fmt.Errorf("status %d", status)
		}
		span.End(err)
	}
}

// traceparent returns the trace that a request is in, with our sampled flag: that of its span or,
// while tracing is off, that of its sender; "": none.
func traceparent(c *fiber.Ctx) string {
	if known, ok := c.Context().UserValue(callKey{}).(*call.Call); ok && known.Span != (tracing.Span{}) {
		return known.Span.Traceparent()
	}
	sent := tracing.Traceparent(c.Get(traceParentHeader))
	if sent == "" {
		return ""
	}
	return sent[:len(sent)-len("01")] + "00"
}

// contextOf is context with the span of the request.
func (s *server) contextOf(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	ctx, cancel := s.context()
	if known, _ := callOf(c); known.Span != (tracing.Span{}) {
		ctx = tracing.Into(ctx, known.Span)
	}
	return ctx, cancel
}
