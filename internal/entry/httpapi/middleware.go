package httpapi

import (
	"bytes"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/token"
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
}

func newHTTPMetrics(registry prometheus.Registerer, inFlight *atomic.Int64, waiting, streams func() int) *httpMetrics {
	m := &httpMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_http_request_duration_seconds", Help: "Duration of HTTP requests by method, route and status; with Prefer: wait the wait is included.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}, []string{"method", "route", "status"}),
		refusedTokens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_tokens_refused_total",
			Help: "Tokens of users and viewers that were refused, by reason: the claim that is wrong, or what is wrong with the signature."}, []string{"reason"}),
	}
	telemetry.Expect(m.refusedTokens, token.Reasons()...)
	registry.MustRegister(m.duration, m.refusedTokens, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "triprize_http_requests_in_flight", Help: "HTTP requests being served."},
		func() float64 { return float64(inFlight.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_jobs_waited_for", Help: "Jobs that clients of this process wait for."},
			func() float64 { return float64(waiting()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_streams_open", Help: "Event streams that clients of this process have open."},
			func() float64 { return float64(streams()) }))
	return m
}

// observe gives every request an id, counts it and logs it.
func (s *Server) observe(c *fiber.Ctx) error {
	start, known := time.Now(), &logged{}
	c.Context().SetUserValue(loggedKey{}, known)
	requestID(c)
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	endSpan := beginSpan(c, known)
	known.traced = traceparent(c)
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
	if bytes.HasPrefix(c.Response().Header.ContentType(), []byte("text/html")) { // its address may name what only its reader knows
		c.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	}
	return err
}
