package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/triangle"
	"triprize/internal/platform/config"
	"triprize/internal/platform/devstack"
)

// holdCrowd is five hundred who want one position at the same moment, and then
// the next five hundred, with the lock in Redis or without.
type holdCrowd struct{ locks bool }

// Names of figures, each for one crowd.
const (
	transactionsOfCrowd = "transactions a crowd"
	rowsOfCrowd         = "rows written a crowd"
	timeOfCrowd         = "ms a crowd"
	postgresOfCrowd     = "µs of postgres' cpu a crowd"
)

// crowds is more than come in the longest measurement.
const crowds = 400

func wanted() offer { return offer{"template_wanted", slices.Repeat([]int{4}, crowds)} }

func (h holdCrowd) run(ctx context.Context, s *stage, measured time.Duration) (r result, err error) {
	v, err := s.openSale(ctx, wanted())
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.close(ctx)) }()
	before, err := v.activity(ctx)
	if err != nil {
		return r, err
	}
	if err := v.serveAlone(ctx, "TRIPRIZE_LOCKS_ENABLED="+strconv.FormatBool(h.locks)); err != nil {
		return r, err
	}
	everybody, err := v.gather(ctx)
	if err != nil {
		return r, err
	}
	seen, w := &holdTally{}, &window{meter: v.meter()}
	took, latencies, done := storms(ctx, everybody, v.campaigns, w, measured, seen)
	for _, c := range everybody {
		_ = c.conn.Close() // nothing is on its way
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	r = newResult(len(latencies), w.elapsed, latencies)
	r.wrong = append(seen.strangeness(), v.dismiss()...) // what connections did is counted when they end
	after, err := v.activity(ctx)
	if err != nil {
		return r, err
	}
	slices.Sort(took)
	r.note(timeOfCrowd, milliseconds(quantile(took, 50)))
	r.note(transactionsOfCrowd, float64(after.transactions-before.transactions)/float64(done))
	r.note(rowsOfCrowd, float64(after.rows-before.rows)/float64(done))
	if n := len(took); n > 0 {
		r.note(postgresOfCrowd, w.cores("postgres")*w.elapsed.Seconds()*1e6/float64(n))
	}
	r.noteUsage(w, len(latencies))
	odd, err := v.heldOnce(ctx, v.campaigns[:done])
	if err != nil {
		return r, err
	}
	if seen.made != done {
		odd = append(odd, fmt.Sprintf("%d of %d crowds' positions were given away", seen.made, done))
	}
	found, err := v.verify(ctx, expectation{})
	r.wrong = append(append(r.wrong, odd...), found...)
	return r, err
}

// serveAlone starts nothing but an api.
func (v *venue) serveAlone(ctx context.Context, env ...string) (err error) {
	if v.address, err = devstack.FreeAddress(); err != nil {
		return err
	}
	v.fleet = &devstack.Fleet{BinDir: v.stage.binaries, LogDir: v.dir, Env: append(env, config.FileVariable+"="+v.settingsFile()),
		Logger: slog.New(slog.DiscardHandler)}
	if _, err := v.fleet.StartAPI(v.address); err != nil {
		return err
	}
	return devstack.AwaitHTTP(ctx, "http://"+v.address+"/readyz")
}

// gather opens everybody's connection.
func (v *venue) gather(ctx context.Context) (everybody []*connection, err error) {
	for range connections {
		c, err := dial(ctx, v.address, v.stage.appKey)
		if err != nil {
			return nil, err
		}
		everybody = append(everybody, c)
	}
	return everybody, nil
}

// storms sends everybody for one position of each campaign, one campaign after
// the other, and returns how long each crowd took and each request of theirs
// while the window was open, and how many crowds there were in all.
func storms(ctx context.Context, everybody []*connection, campaigns []uuid.UUID, w *window, measured time.Duration, seen *holdTally) (took, latencies []time.Duration, done int) {
	start, closed := time.Now(), func() {}
	for _, id := range campaigns {
		if !w.isOpen() && time.Since(start) >= warmUp(measured) {
			closed = w.open()
		}
		if ctx.Err() != nil || time.Since(start) >= warmUp(measured)+measured {
			break
		}
		begun, of := time.Now(), make([]time.Duration, len(everybody))
		var all sync.WaitGroup
		for i, c := range everybody {
			all.Go(func() {
				a, err := c.hold(id, triangle.Position{Layer: 3, Column: 2})
				if err != nil {
					a.body = []byte(err.Error())
				}
				of[i] = time.Since(begun)
				seen.note(a, of[i], false)
			})
		}
		all.Wait()
		done++
		if w.isOpen() {
			took, latencies = append(took, time.Since(begun)), append(latencies, of...)
		}
	}
	closed()
	return took, latencies, done
}

// activity is what a database has been asked to do so far.
type activity struct{ transactions, rows int }

// settled is how long the counters of a database must stand still to be believed;
// they are written when connections end.
const settled = 500 * time.Millisecond

// activity reads what the venue's database has done, once that stands still.
func (v *venue) activity(ctx context.Context) (now activity, err error) {
	for last := (activity{-1, -1}); ; last = now {
		err = v.db.QueryRow(ctx, `
			SELECT xact_commit + xact_rollback, tup_inserted + tup_updated + tup_deleted
			FROM pg_stat_database WHERE datname = current_database()`).Scan(&now.transactions, &now.rows)
		if err != nil {
			return now, fmt.Errorf("activity: %w", err)
		}
		if now.rows == last.rows && now.transactions-last.transactions <= 2 { // our own look
			return now, nil
		}
		if wait(ctx, settled, nil); ctx.Err() != nil {
			return now, ctx.Err()
		}
	}
}
