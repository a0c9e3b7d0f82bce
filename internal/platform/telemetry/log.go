package telemetry

import (
	"io"
	"log/slog"
	"time"

	"triprize/internal/platform/config"
)

// NewLogger returns a logger that marks every line with the process kind. It bounds the lines of
// one message; end with Flush.
func NewLogger(settings config.Log, process string, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(settings.Level)) // config has checked it
	opts := &slog.HandlerOptions{Level: level}
	out := &lines{out: w}
	var handler slog.Handler = slog.NewJSONHandler(out, opts)
	if settings.Format == "text" {
		handler = slog.NewTextHandler(out, opts)
	}
	return slog.New(sampler{handler, &counts{}, out}).With("process", process)
}

// Took says in a log line how long something took, in milliseconds.
func Took(d time.Duration) slog.Attr {
	return slog.Float64("took_ms", float64(d.Microseconds())/1000)
}
