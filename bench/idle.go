package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"triprize/devkit/devstack"
)

const (
	// idleWorkers is the size of the idle fleet.
	idleWorkers = 50
	// idleFor is how long they are measured at least: the longest interval of asynq that
	// matters is 8 s.
	idleFor = 16 * time.Second
)

// Figures of an idle fleet.
const (
	idleWorkerCPU      = "idle worker, % of a core"
	idleWorkerRequests = "idle worker, requests/s"
	idleRedisCPU       = "redis with 50 idle workers, %"
)

// runIdleFleet measures what processes without work cost: an api, a worker and a scheduler,
// with cards, and then Redis with fifty workers. The requests of a worker are what forty-nine
// more of them add.
func runIdleFleet(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.on(ctx, migrated, func(sys *system) (r result, err error) {
		if err := sys.serveCards(ctx, 0); err != nil {
			return r, err
		}
		r.figures, err = sys.costs(ctx, max(measured, idleFor))
		r.wrong = sys.stop()
		return r, err
	})
}

func (sys *system) costs(ctx context.Context, measured time.Duration) (notes map[string]float64, err error) {
	m := sys.meter()
	m.groups = append(m.groups, group{"scheduler", devstack.PIDs(sys.fleet.Schedulers)})
	w, alone, err := sys.rest(ctx, m, measured)
	if err != nil {
		return nil, err
	}
	notes = map[string]float64{idleWorkerCPU: 100 * w.cores["worker"], "idle api, % of a core": 100 * w.cores["api"],
		"idle scheduler, % of a core": 100 * w.cores["scheduler"], "redis with an idle worker, %": 100 * w.cores["redis"],
		"postgres with an idle worker, %": 100 * w.cores["postgres"]}
	for range idleWorkers - 1 {
		if _, err := sys.fleet.StartWorker(); err != nil {
			return nil, err
		}
	}
	for sys.setup.redis.ZCard(ctx, sys.settings.Redis.Namespace+":processes").Val() < idleWorkers+1 { // and the scheduler
		if wait(ctx, 100*time.Millisecond, nil); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	w, all, err := sys.rest(ctx, sys.meter(), measured)
	notes[idleWorkerRequests], notes[idleRedisCPU] = (all-alone)/(idleWorkers-1), 100*w.cores["redis"]
	notes["postgres with 50 idle workers, %"] = 100 * w.cores["postgres"]
	return notes, err
}

// rest measures processes that have nothing to do, and the requests that Redis gets in a second.
func (sys *system) rest(ctx context.Context, m *meter, measured time.Duration) (w *window, requests float64, err error) {
	wait(ctx, 5*time.Second, nil) // after its start
	w = newWindow(m)
	before, err := sys.requests(ctx)
	if err != nil {
		return w, 0, err
	}
	closed := w.open()
	wait(ctx, measured, nil)
	closed()
	after, err := sys.requests(ctx)
	return w, (after - before) / w.elapsed.Seconds(), err
}

// requests is how often Redis has read from its clients so far: its count of commands has those of scripts, too.
func (sys *system) requests(ctx context.Context) (float64, error) {
	return sys.info(ctx, "stats", "total_reads_processed")
}

// info returns a figure of a section of Redis' INFO.
func (sys *system) info(ctx context.Context, section, name string) (float64, error) {
	figures, err := sys.setup.redis.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(figures, name+":")
	number, _, _ := strings.Cut(after, "\r")
	return strconv.ParseFloat(number, 64)
}
