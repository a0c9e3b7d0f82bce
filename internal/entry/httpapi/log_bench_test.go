package httpapi

import (
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/config"
	"triprize/internal/platform/telemetry"
)

// local is a connection from this machine.
type local struct{ net.Conn }

func (local) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7} }
func (local) LocalAddr() net.Addr  { return &net.TCPAddr{} }

// What the line of a request costs, with the write to a file.
func BenchmarkTheLineOfARequest(b *testing.B) {
	file, err := os.Create(b.TempDir() + "/log")
	if err != nil {
		b.Fatal(err)
	}
	for name, logger := range map[string]*slog.Logger{
		"on": telemetry.NewLogger(config.Log{Level: "info", Format: "json"}, "api", file), "off": telemetry.NewLogger(config.Log{Level: "warn", Format: "json"}, "api", file),
	} {
		b.Run(name, func(b *testing.B) {
			s := &Server{logger: logger}
			app := fiber.New()
			r := &fasthttp.RequestCtx{}
			r.Init2(local{}, nil, false)
			c := app.AcquireCtx(r)
			known := &call.Call{Caller: call.Caller{Role: resource.App, Client: "shop", KeyPrefix: "0123456789ab"}, Operation: "requestPurchase", Job: uuid.New()}
			b.ReportAllocs()
			for b.Loop() {
				s.log(c, known, 202, time.Millisecond)
			}
		})
	}
}
