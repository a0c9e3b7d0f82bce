package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"
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
	"triprize/internal/entry/httpapi/docs"
	"triprize/internal/platform/sweep"
	"triprize/internal/platform/telemetry"
)

const (
	asynqmonPath = "/asynqmon"
	// collectPatience bounds how long the metrics of the queues, from Redis, hold up the others.
	collectPatience = 2 * time.Second
)

// mountDashboard registers asynqmon and the metrics of the queues.
func (s *Server) mountDashboard(app *fiber.App, rdb redis.UniversalClient) error {
	client, ok := rdb.(*redis.Client)
	if !ok {
		return nil
	}
	options := asynq.RedisClientOpt{Addr: client.Options().Addr, Username: client.Options().Username,
		Password: client.Options().Password, DB: client.Options().DB, TLSConfig: client.Options().TLSConfig}
	s.registry.MustRegister(telemetry.Bounded(metrics.NewQueueMetricsCollector(asynq.NewInspectorFromRedisClient(rdb)), collectPatience))
	dashboard := asynqmon.New(asynqmon.Options{RootPath: asynqmonPath, RedisConnOpt: options, ReadOnly: s.settings.API.AsynqmonReadOnly})
	page, files, err := dashboardFiles(dashboard)
	if err != nil {
		return err
	}
	app.Use(asynqmonPath, s.authenticateBrowser, func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderXFrameOptions, "DENY")
		return c.Next()
	})
	for path, file := range files {
		app.Get(path, file.Send)
	}
	// A browser that remembers an operator's key would also send it with a form on
	// another site's page.
	handler := adaptor.HTTPHandler(http.NewCrossOriginProtection().Handler(dashboard))
	app.All(asynqmonPath+"/api/*", handler)
	app.Get(asynqmonPath+"/static/*", handler)
	app.Get(asynqmonPath, page.Send)
	app.Get(asynqmonPath+"/*", page.Send) // the script shows what the path says
	return nil
}

var (
	elsewhere    = regexp.MustCompile(`<link rel="stylesheet" href="https://[^>]*>`)
	inlineScript = regexp.MustCompile(`(?s)<script>(.*?)</script>`)
	ownFile      = regexp.MustCompile(`(?:src|href)="(` + asynqmonPath + `/[^"]+)"`)
)

// dashboardFiles returns asynqmon's page, without the fonts that it would load from
// another server, and the files that the page names.
func dashboardFiles(dashboard http.Handler) (page *docs.File, files map[string]*docs.File, err error) {
	get := func(path string) (*recorder, error) {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
		if err != nil {
			return nil, err
		}
		answer := &recorder{header: make(http.Header), status: http.StatusOK}
		if dashboard.ServeHTTP(answer, request); answer.status != http.StatusOK {
			return nil, fmt.Errorf("asynqmon has no %s: %d", path, answer.status)
		}
		return answer, nil
	}
	index, err := get(asynqmonPath + "/")
	if err != nil {
		return nil, nil, err
	}
	text := elsewhere.ReplaceAllString(index.body.String(), "")
	scripts := "'self'"
	for _, found := range inlineScript.FindAllStringSubmatch(text, -1) {
		digest := sha256.Sum256([]byte(found[1]))
		scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'"
	}
	policy := "default-src 'none'; script-src " + scripts + "; style-src 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; manifest-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	files = make(map[string]*docs.File)
	for _, found := range ownFile.FindAllStringSubmatch(text, -1) {
		file, err := get(found[1])
		if err != nil {
			return nil, nil, err
		}
		contentType := file.header.Get(fiber.HeaderContentType)
		if strings.HasSuffix(found[1], ".json") {
			contentType = fiber.MIMEApplicationJSON
		}
		files[found[1]] = docs.NewFile(contentType, "", file.body.Bytes())
	}
	return docs.NewFile(fiber.MIMETextHTMLCharsetUTF8, policy, []byte(text)), files, nil
}

// recorder keeps an answer in memory.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// ListSweeps answers with every sweep and its last report.
func (s *Server) ListSweeps(ctx context.Context, _ operations.ListSweepsRequestObject) (operations.Answer, error) {
	reports, err := s.sweeper.LastReports(ctx)
	if err != nil {
		s.logger.Debug("reports of sweeps cannot be read", "error", err) // the sweeps are listed without them
	}
	var answer contract.SweepList
	for _, sweep := range s.sweeper.Sweeps {
		one := contract.Sweep{Name: sweep.Name, IntervalSeconds: float32(sweep.Every.Seconds())}
		if last, ok := reports[sweep.Name]; ok {
			report := reportJSON(last)
			one.LastReport = &report
		}
		answer.Sweeps = append(answer.Sweeps, one)
	}
	return operations.ListSweeps200(answer, nil)
}

// RunSweep runs a sweep now, whichever scheduler leads. It ends with the time of the
// request.
func (s *Server) RunSweep(ctx context.Context, r operations.RunSweepRequestObject) (operations.Answer, error) {
	for _, sweep := range s.sweeper.Sweeps {
		if sweep.Name != r.Sweep {
			continue
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
