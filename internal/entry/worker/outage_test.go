package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

// A worker has a task in hand. Probes hang, as in a half-open connection, or fail at once, as while Postgres
// restarts.
func TestAWorkerThatDoesNotReachPostgresPausesAndThenReleasesItsTasks(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		hangs              bool
		lasts              time.Duration
		paused, isReleased bool
		resumedAfter       time.Duration // from the end of the outage, at most
	}{
		{false, 1500 * time.Millisecond, false, false, 0},
		{true, 1900 * time.Millisecond, false, false, 0}, // a probe is late
		{false, 4 * time.Second, true, false, probeAgain},
		{true, 4 * time.Second, true, false, probeTimeout},
		{false, 6 * time.Second, true, true, probeAgain},
		{true, time.Minute, true, true, probeTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			var pausedAt, releasedAt, resumedAt time.Duration
			began := time.Now()
			o := newOutages(servers.Logger(t))
			away, end := context.WithTimeout(t.Context(), row.lasts)
			defer end()
			o.probe = func(ctx context.Context) error {
				if away.Err() != nil {
					return nil //nolint:nilerr // it is over
				}
				if !row.hangs {
					return errors.New("refused")
				}
				select {
				case <-away.Done():
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			handle := o.handler(func(ctx context.Context, _ queue.Task, _ bool) error {
				select {
				case <-ctx.Done():
					releasedAt = time.Since(began)
				case <-time.After(row.lasts + time.Minute):
				}
				return ctx.Err()
			})
			var err error
			go func() { err = handle(t.Context(), queue.Task{}, false) }()
			ctx, stop := context.WithCancel(t.Context())
			go o.run(ctx, func() (resume func()) {
				pausedAt = time.Since(began)
				return func() { resumedAt = time.Since(began) }
			})
			time.Sleep(row.lasts + 2*time.Minute)
			stop()
			synctest.Wait()
			if row.paused != (pausedAt > 0) || pausedAt > pauseAfter+probeTimeout/2 || row.paused && pausedAt < pauseAfter {
				t.Errorf("%+v: paused after %s", row, pausedAt)
			}
			if row.paused && (resumedAt < row.lasts || resumedAt > row.lasts+row.resumedAfter) {
				t.Errorf("%+v: resumed after %s", row, resumedAt)
			}
			if row.isReleased != (releasedAt > 0) || releasedAt > releaseAfter+probeAgain || row.isReleased && releasedAt < releaseAfter {
				t.Errorf("%+v: released after %s", row, releasedAt)
			}
			if row.isReleased != errors.Is(err, queue.ErrSnoozed) || !row.isReleased && err != nil {
				t.Errorf("%+v: the handler returned %v", row, err)
			}
			if err := o.handler(func(ctx context.Context, _ queue.Task, _ bool) error { return ctx.Err() })(t.Context(), queue.Task{}, false); err != nil {
				t.Errorf("%+v: after it, %v", row, err)
			}
		})
	}
}

// A task in hand since before an outage that was too short to release it is released in the next one.
func TestATaskFromBeforeAShortOutageIsReleasedInTheNextOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := newOutages(servers.Logger(t))
		o.probe = func(context.Context) error {
			if after := time.Since(began); after < 3*time.Second || after > 10*time.Second {
				return errors.New("refused")
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go o.run(ctx, func() (resume func()) { return func() {} })
		err := o.handler(func(ctx context.Context, _ queue.Task, _ bool) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			return nil
		})(t.Context(), queue.Task{}, false)
		if after := time.Since(began) - 10*time.Second; !errors.Is(err, queue.ErrSnoozed) || after > releaseAfter+probeAgain {
			t.Errorf("%s after the begin of the second outage: %v", after, err)
		}
	})
}
