package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"triprize/devkit/devstack"
)

const (
	// idleWorkers is the size of the idle fleet.
	idleWorkers = 50
	// idleSettles is how long processes have after their start until they are idle.
	idleSettles = 5 * time.Second
	// idleFor is how long they are measured at least: the longest interval of asynq that
	// matters is 8 s.
	idleFor = 16 * time.Second
)

// Figures of an idle fleet.
const (
	idleWorkerCPU      = "idle worker, % of a core"
	idleWorkerCommands = "idle worker, commands/s"
	idleAPICPU         = "idle api, % of a core"
	idleSchedulerCPU   = "idle scheduler, % of a core"
	idleRedisAloneCPU  = "redis with an idle worker, %"
	idleRedisCPU       = "redis with 50 idle workers, %"
)

// runIdleFleet measures what processes without work cost: an api, a worker and a scheduler,
// then Redis with fifty workers; and the purchases of another system beside these.
func runIdleFleet(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	idle, err := s.openSystem(ctx, migrated)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, idle.close(ctx)) }()
	if err := idle.serveCards(ctx, 0); err != nil {
		return r, err
	}
	notes, err := idle.costs(ctx, max(measured, idleFor))
	if err != nil {
		return r, err
	}
	r, err = crowdedSale{offer: hot}.run(ctx, s, measured)
	r.Figures = append(r.Figures, notes...)
	return r, err
}

// costs measures the processes of a system alone, and Redis with fifty workers, which it
// leaves running.
func (sys *system) costs(ctx context.Context, measured time.Duration) (notes []figure, err error) {
	alone := sys.meter()
	alone.groups = append(alone.groups, group{"scheduler", devstack.PIDs(sys.fleet.Schedulers)})
	w := sys.rest(ctx, alone, measured)
	commands, err := sys.commands(ctx, measured)
	if err != nil {
		return nil, err
	}
	for _, role := range []string{"worker", "api", "scheduler"} {
		notes = append(notes, figure{"idle " + role + ", % of a core", 100 * w.cores(role)}, figure{"idle " + role + ", commands/s", commands["triprize-"+role]})
	}
	notes = append(notes, figure{idleRedisAloneCPU, 100 * w.cores("redis")}, figure{"postgres with an idle worker, %", 100 * w.cores("postgres")})
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
	w = sys.rest(ctx, sys.meter(), measured)
	return append(notes, figure{idleRedisCPU, 100 * w.cores("redis")}, figure{"postgres with 50 idle workers, %", 100 * w.cores("postgres")},
		figure{"50 idle workers, % of a core each", 100 * w.cores("worker") / idleWorkers}), ctx.Err()
}

// rest measures processes that have nothing to do.
func (sys *system) rest(ctx context.Context, m *meter, measured time.Duration) *window {
	wait(ctx, idleSettles, nil)
	w := newWindow(m)
	closed := w.open()
	wait(ctx, measured, nil)
	closed()
	return w
}

// commands counts the commands that Redis gets in a second, by the name of their clients.
func (sys *system) commands(ctx context.Context, measured time.Duration) (map[string]float64, error) {
	lines, err := sys.monitor(ctx, measured)
	if err != nil {
		return nil, err
	}
	list, err := sys.setup.redis.ClientList(ctx).Result()
	if err != nil {
		return nil, err
	}
	names := make(map[string]string)
	for line := range strings.Lines(list) {
		var address string
		for _, field := range strings.Fields(line) {
			if value, ok := strings.CutPrefix(field, "addr="); ok {
				address = value
			} else if value, ok := strings.CutPrefix(field, "name="); ok {
				names[address] = value
			}
		}
	}
	counts := make(map[string]float64)
	for _, line := range lines { // +1700000000.123456 [0 127.0.0.1:4321] "get" …; inside a script: [0 lua]
		if fields := strings.Fields(line); len(fields) > 2 {
			counts[names[strings.TrimSuffix(fields[2], "]")]] += 1 / measured.Seconds()
		}
	}
	return counts, nil
}

// monitor returns what MONITOR prints in a time. The client library gives the connection back
// to its pool meanwhile.
func (sys *system) monitor(ctx context.Context, measured time.Duration) (lines []string, err error) {
	options := sys.setup.redis.Options()
	conn, err := (&net.Dialer{}).DialContext(ctx, options.Network, options.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nMONITOR\r\n", options.Password); err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(measured)); err != nil {
		return nil, err
	}
	scanner := bufio.NewScanner(conn)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	if err := scanner.Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("MONITOR ended early: %w", errors.Join(err, io.EOF))
	}
	return lines, ctx.Err()
}
