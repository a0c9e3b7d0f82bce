package telemetry

import (
	"io"
	"log/slog"

	"triprize/internal/platform/config"
)

// NewLogger returns a logger that marks every line with the process kind, and
// makes it the default for libraries that use slog.
func NewLogger(settings config.Log, process string, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(settings.Level)) // config has checked it
	opts := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(w, opts)
	if settings.Format == "text" {
		handler = slog.NewTextHandler(w, opts)
	}
	logger := slog.New(handler).With("process", process)
	slog.SetDefault(logger)
	return logger
}
