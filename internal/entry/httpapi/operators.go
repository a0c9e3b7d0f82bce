package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"regexp"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/hibiken/asynq"
	"github.com/hibiken/asynq/x/metrics"
	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/sweep"
	"triprize/internal/platform/telemetry"
	"triprize/internal/trail"
)

const (
	asynqmonPath = "/asynqmon"
	// collectPatience bounds how long the metrics of the queues, from Redis, hold up the others.
	collectPatience = 2 * time.Second
)

// opened lets asynqmon use a client that is open. Nobody closes the dashboard, so it does not close the client.
type opened struct{ redis.UniversalClient }

// MakeRedisClient implements asynq.RedisConnOpt. asynqmon looks at the type of the client.
func (o opened) MakeRedisClient() any { return o.UniversalClient }

// mountDashboard registers asynqmon and the metrics of the queues.
func (s *server) mountDashboard(app *fiber.App, rdb redis.UniversalClient) {
	s.registry.MustRegister(telemetry.Bounded(metrics.NewQueueMetricsCollector(asynq.NewInspectorFromRedisClient(rdb)), collectPatience))
	dashboard := func(readOnly bool) fiber.Handler {
		of := asynqmon.New(asynqmon.Options{RootPath: asynqmonPath, RedisConnOpt: opened{rdb}, ReadOnly: readOnly})
		// A browser that remembers an operator's key would also send it with a form on
		// another site's page.
		return adaptor.HTTPHandler(http.NewCrossOriginProtection().Handler(of))
	}
	forOperators, forViewers := dashboard(s.settings.API.AsynqmonReadOnly), dashboard(true)
	app.Use(asynqmonPath, s.authenticateBrowser, func(c *fiber.Ctx) error {
		handler := forViewers
		if known, _ := callOf(c); known.Role == resource.Operator {
			handler = forOperators
		}
		if err := handler(c); err != nil {
			return err
		}
		c.Set(fiber.HeaderXFrameOptions, "DENY")
		if answer := c.Response(); bytes.HasPrefix(answer.Header.ContentType(), []byte(fiber.MIMETextHTML)) {
			page := elsewhere.ReplaceAll(answer.Body(), nil)
			answer.SetBody(page)
			c.Set(fiber.HeaderContentSecurityPolicy, dashboardPolicy(page))
		}
		return nil
	})
}

var (
	elsewhere    = regexp.MustCompile(`<link rel="stylesheet" href="https://[^>]*>`) // fonts of another server
	inlineScript = regexp.MustCompile(`(?s)<script>(.*?)</script>`)
)

// dashboardPolicy lets a browser run the scripts of asynqmon's page, and load its own files.
func dashboardPolicy(page []byte) string {
	scripts := "'self'"
	for _, found := range inlineScript.FindAllSubmatch(page, -1) {
		digest := sha256.Sum256(found[1])
		scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'"
	}
	return "default-src 'none'; script-src " + scripts + "; style-src 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; manifest-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

func (s *server) ListSweeps(ctx context.Context, _ operations.ListSweepsRequestObject) (operations.Answer, error) {
	reports, err := s.sweeper.LastReports(ctx)
	if err != nil {
		s.logger.Debug("reports of sweeps cannot be read", "error", err) // the sweeps are listed without them
	}
	var answer contract.SweepList
	for _, sweep := range s.sweeper.Sweeps {
		one := contract.Sweep{Name: sweep.Name, IntervalSeconds: float32(sweep.Every.Seconds())}
		if last, ok := reports[sweep.Name]; ok {
			one.LastReport = new(reportJSON(last))
		}
		answer.Sweeps = append(answer.Sweeps, one)
	}
	return operations.ListSweeps200(answer, nil)
}

// RunSweep runs a sweep now, whichever scheduler leads. It ends with the time of the
// request.
func (s *server) RunSweep(ctx context.Context, r operations.RunSweepRequestObject) (operations.Answer, error) {
	for _, sweep := range s.sweeper.Sweeps {
		if sweep.Name != r.Sweep {
			continue
		}
		if err := trail.Write(ctx, s.db, nil, nil); err != nil { // before it: a run has many transactions
			return nil, err
		}
		report, err := s.sweeper.Run(ctx, sweep)
		if err != nil {
			s.logger.Warn("a requested sweep failed", "sweep", sweep.Name, "error", err)
		}
		return operations.RunSweep200(reportJSON(report), nil)
	}
	return nil, fault.New(fault.NotFound, "there is no sweep with this name; GET /v1/sweeps lists them")
}

// reportJSON is a report without internal error texts.
func reportJSON(r sweep.Report) contract.SweepReport {
	if r.Error != "" {
		r.Error = "the sweep failed; the log says why"
	}
	return contract.SweepReport{Sweep: r.Sweep, StartedAt: r.StartedAt, DurationMs: r.DurationMS, Counts: r.Counts, More: r.More, Error: r.Error}
}
