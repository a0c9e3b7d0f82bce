package delivery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

// A worker has a task in hand since before an outage that was too short to release it. In the next one probes hang,
// as in a half-open connection, or fail at once, as while Postgres restarts.
func TestAWorkerThatDoesNotReachPostgresPausesAndThenReleasesItsTasks(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		hangs bool
		lasts time.Duration
		want  string
	}{
		{false, 1500 * time.Millisecond, ""},
		{true, 1900 * time.Millisecond, ""}, // a probe is late
		{false, 4 * time.Second, "pause 2s, resume 4s, "},
		{true, 4 * time.Second, "pause 3s, resume 4s, "},
		{false, 6 * time.Second, "pause 2s, release 5s, resume 6s, "},
		{true, time.Minute, "pause 3s, release 5s, resume 1m0s, "},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log servers.Journal
			began := time.Now().Add(10 * time.Second) // of the next one. The short one ends after 3 s
			note := func(what string) { _, _ = fmt.Fprintf(&log, "%s %s, ", what, time.Since(began)) }
			o := NewOutages(servers.Logger(t))
			o.Probe = func(ctx context.Context) error {
				switch after := time.Since(began); {
				case after >= -7*time.Second && after <= 0, after >= row.lasts:
					return nil
				case row.hangs:
					select {
					case <-time.After(row.lasts - after):
					case <-ctx.Done():
					}
					return ctx.Err()
				}
				return errors.New("refused")
			}
			idle := o.Handler(func(ctx context.Context, _ queue.Task, _ bool) error {
				select {
				case <-ctx.Done():
				case <-time.After(row.lasts + time.Minute):
				}
				return ctx.Err()
			})
			go func() {
				switch err := idle(t.Context(), queue.Task{}, false); {
				case errors.Is(err, queue.ErrSnoozed):
					note("release")
				case err != nil:
					t.Errorf("%+v: the handler returned %v", row, err)
				}
			}()
			go o.Run(t.Context(), func() (resume func()) {
				note("pause")
				return func() { note("resume") }
			})
			time.Sleep(time.Until(began))
			log.Take() // of the short one
			time.Sleep(row.lasts + time.Minute)
			if got := log.String(); got != row.want {
				t.Errorf("%+v: got %q", row, got)
			}
			if err := idle(t.Context(), queue.Task{}, false); err != nil {
				t.Errorf("%+v: after it, %v", row, err)
			}
		})
	}
}
