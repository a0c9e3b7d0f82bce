package main

import (
	"context"
	"fmt"
	"time"

	"triprize/internal/domain/shape"
)

// A first minute is looked at in windows.
const (
	wholeRun       = time.Minute
	minuteWindow   = 5 * time.Second
	firstPurchases = 50 // one after the other: sessions make their plans for tables that are empty

	lowestWindow  = "purchases, lowest window / after ANALYZE"
	dearestWindow = "cpu of postgres each, dearest window / after ANALYZE"
)

// twoLargest are campaigns with more positions than are sold in a minute.
var twoLargest = offer{name: "template_two_largest", baseLengths: []int{shape.MaxBaseLength, shape.MaxBaseLength}}

// runFirstMinute measures purchases on a database without statistics, as a new or restored
// one is, and then after ANALYZE. Its time is its own.
func runFirstMinute(ctx context.Context, s *setup, _ time.Duration) (result, error) {
	return s.onSale(ctx, twoLargest, func(sys *system) (r result, err error) {
		if err := sys.forgetStatistics(ctx); err != nil {
			return r, err
		}
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		first := sys.crowd(1)
		first.requests = firstPurchases
		before := first.run(ctx, newWindow(nil))
		w := newWindow(sys.meter())
		var seen *observed
		ended := make(chan struct{})
		closed := w.open()
		go func() {
			defer close(ended)
			seen = sys.crowd(connections).run(ctx, w)
		}()
		windows, err := sys.minute(ctx, w)
		closed()
		<-ended
		if err != nil {
			return r, err
		}
		r = w.result(seen)
		seen.add(before)
		last := windows[len(windows)-1]
		lowest, dearest := last.rate, last.postgres
		for i, one := range windows {
			name := fmt.Sprintf("from %d s", i*int(minuteWindow.Seconds()))
			if i == len(windows)-1 {
				name = "after ANALYZE"
			}
			lowest, dearest = min(lowest, one.rate), max(dearest, one.postgres)
			r.note(name+", purchases/s", one.rate)
			r.note(name+", µs of postgres each", one.postgres)
		}
		r.note(lowestWindow, divide(lowest, last.rate))
		r.note(dearestWindow, divide(dearest, last.postgres))
		r.noteUsage(w, seen.measured[succeeded])
		if r.wrong, err = sys.finish(ctx, seen, 1); seen.whole[soldOut] > 0 {
			r.wrong = append(r.wrong, "the positions ran out")
		}
		return r, err
	})
}

// forgetStatistics leaves what a restore leaves: no table was ever analysed.
func (sys *system) forgetStatistics(ctx context.Context) error {
	_, err := sys.db.Exec(ctx, `
		WITH ours AS (UPDATE pg_class SET relpages = 0, reltuples = -1, relallvisible = 0
			WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace RETURNING oid)
		DELETE FROM pg_statistic USING ours WHERE starelid = ours.oid`)
	return err
}

// shortWindow is what was done in a short part of a run.
type shortWindow struct{ rate, postgres float64 }

// minute returns the windows of the first minute, and one after ANALYZE.
func (sys *system) minute(ctx context.Context, w *window) (windows []shortWindow, err error) {
	for range wholeRun / minuteWindow {
		if windows, err = sys.look(ctx, w, windows); err != nil {
			return nil, err
		}
	}
	if _, err := sys.db.Exec(ctx, `ANALYZE`); err != nil {
		return nil, err
	}
	return sys.look(ctx, w, windows)
}

// look appends the next window.
func (sys *system) look(ctx context.Context, w *window, windows []shortWindow) ([]shortWindow, error) {
	before, err := sys.sold(ctx)
	if err != nil {
		return nil, err
	}
	start, used := time.Now(), w.meter.read()
	wait(ctx, minuteWindow, w.soldOut)
	elapsed, usedThen := time.Since(start), w.meter.read()
	after, err := sys.sold(ctx)
	postgres := (usedThen["postgres"] - used["postgres"]).Seconds() * 1e6
	return append(windows, shortWindow{perSecond(after-before, elapsed), divide(postgres, float64(after-before))}), err
}

func (sys *system) sold(ctx context.Context) (n int, err error) {
	err = sys.db.QueryRow(ctx, `SELECT sum(positions_sold) FROM campaigns`).Scan(&n)
	return n, err
}
