package httpapi

import (
	"context"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/books"
	"triprize/internal/books/export"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/telemetry"
)

// sendFunc is an answer that sends itself.
type sendFunc func(c *fiber.Ctx) error

// Send implements operations.Answer.
func (s sendFunc) Send(c *fiber.Ctx) error { return s(c) }

// documents limits how many long documents are sent at a time; each is sent as slowly as its reader reads it,
// within a time.
type documents struct {
	slots
	ended *prometheus.CounterVec
}

func newDocuments(what string, limit int, registry prometheus.Registerer, metric, help string, outcomes ...string) documents {
	d := documents{newSlots(what, limit), prometheus.NewCounterVec(prometheus.CounterOpts{Name: metric, Help: help}, []string{"outcome"})}
	registry.MustRegister(d.ended)
	telemetry.Expect(d.ended, outcomes...)
	return d
}

const (
	mostExports     = 4         // sent at once, per process
	exportsOfClient = 2         // of these
	longestExport   = time.Hour // one that is not read completely within this is cut off
)

// The media types of an export.
const (
	mimeCSV   = "text/csv"
	mimeLines = "application/x-ndjson"
)

// GetExport reads the first page before it answers: what is wrong until then is a problem. Later it can only cut the connection.
func (s *server) GetExport(ctx context.Context, r operations.GetExportRequestObject) (operations.Answer, error) {
	who, p := call.Of(ctx), r.Params
	request, err := export.Parameters{Kind: r.Kind, Rules: books.RulesOf(s.settings.Books), From: response.ValueOf(p.From), To: response.ValueOf(p.To), Zone: response.ValueOf(p.Zone), AsOf: response.ValueOf(p.AsOf),
		Separator: response.ValueOf(p.Separator), Lines: who.WantsLines, Client: who.Grant().Client()}.Check()
	if err != nil {
		return nil, err
	}
	release, err := s.exports.enter(who.Caller, exportsOfClient)
	if err != nil {
		return nil, err
	}
	handedOver := false
	defer func() {
		if !handedOver {
			release()
		}
	}()
	rows, err := s.openExport(ctx, request)
	if err != nil {
		return nil, err
	}
	handedOver = true
	ended := func(outcome string, err error) {
		if outcome == "failed" {
			s.logger.Warn("an export was cut off", "kind", request.Kind, "error", err)
		}
		s.exports.ended.WithLabelValues(outcome).Inc()
	}
	return sendFunc(func(c *fiber.Ctx) error { //nolint:contextcheck // it is sent after the request
		c.Vary(fiber.HeaderAccept)
		c.Set(fiber.HeaderContentType, request.ContentType())
		c.Set(fiber.HeaderContentDisposition, `attachment; filename="`+request.FileName()+`"`)
		c.Set(fiber.HeaderCacheControl, notStored)
		return response.Pipe{Sending: s.sending, Timeout: longestExport, Release: func() { rows.Close(); release() }, Ended: ended,
			Until: who.UntilRevoked, Write: func(ctx context.Context, w io.Writer) error { return rows.Write(ctx, w) }}.Send(c)
	}), nil
}

func (s *server) openExport(ctx context.Context, request export.Request) (*export.Export, error) {
	db, err := s.reader.Now(ctx)
	if err != nil {
		return nil, err
	}
	return export.Open(ctx, db, request)
}
