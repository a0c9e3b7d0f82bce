package main

import (
	"context"
	"time"

	"triprize/internal/domain/shape"
)

// A first minute is looked at in windows.
const (
	wholeRun       = time.Minute
	minuteWindow   = 5 * time.Second
	firstPurchases = 50 // one after the other: sessions make their plans for tables that are empty

	lowestWindow = "purchases, lowest window / after ANALYZE"
)

// twoLargest are campaigns with more positions than are sold in a minute.
var twoLargest = offer{name: "template_two_largest", baseLengths: []int{shape.MaxBaseLength, shape.MaxBaseLength}}

// runFirstMinute measures purchases on a database without statistics, as a new or restored
// one is, and then after ANALYZE. Its time is its own.
func runFirstMinute(ctx context.Context, s *setup, _ time.Duration) (result, error) {
	return s.onSale(ctx, twoLargest, func(sys *system) (r result, err error) {
		if _, err := sys.db.Exec(ctx, `
			WITH ours AS (UPDATE pg_class SET relpages = 0, reltuples = -1, relallvisible = 0
				WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace RETURNING oid)
			DELETE FROM pg_statistic USING ours WHERE starelid = ours.oid`); err != nil {
			return r, err
		}
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		first := sys.crowd(1)
		first.requests = firstPurchases
		seen := first.run(ctx, newWindow(nil))
		var rates []float64
		for i := range wholeRun/minuteWindow + 1 {
			if i == wholeRun/minuteWindow {
				if _, err := sys.db.Exec(ctx, `ANALYZE`); err != nil {
					return r, err
				}
			}
			w := newWindow(sys.meter())
			now, err := sys.crowd(connections).sell(ctx, w, minuteWindow)
			if err != nil {
				return r, err
			}
			seen.add(now)
			r = w.result(now)
			rates = append(rates, r.figures[rate])
			r.noteUsage(w, now.measured[succeeded])
		}
		r.note(lowestWindow, divide(spreadOf(rates).Min, rates[len(rates)-1]))
		r.wrong, err = sys.finish(ctx, seen, 1)
		return r, err
	})
}
