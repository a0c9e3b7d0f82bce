package queue

import (
	"fmt"
	"log/slog"
	"os"
)

// asynqLog passes asynq's messages to slog.
type asynqLog struct{ logger *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.logger.Debug("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.logger.Info("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.logger.Warn("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.logger.Error("asynq: " + fmt.Sprint(args...)) }

func (l asynqLog) Fatal(args ...any) {
	l.logger.Error("asynq: " + fmt.Sprint(args...))
	os.Exit(1)
}
