package boot

import (
	"context"
	"errors"
	"time"

	"triprize/internal/platform/keyring"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/telemetry"
	"triprize/internal/service/draw"
	"triprize/internal/store/drawrecord"
)

// The causes that degrade the whole system; docs/operations.md says what to do about each.
const (
	causeDrawKeyWrong = "draw_key_wrong" // of this process
	causeDrawFailing  = "draw_failing"
	causeNoScheduler  = "no_scheduler"
	causeNoWorker     = "no_worker"
	causeWorkerFrozen = "worker_frozen"
)

const (
	// lookEvery is how often a process looks at the whole system. The first look comes after
	// it, so that processes that start together find each other.
	lookEvery = 5 * time.Second
	// lookTimeout bounds one look.
	lookTimeout = 2 * time.Second
	// mostNamed is how many campaigns the log names.
	mostNamed = 5
)

// causes returns what the process looks for: a wrong draw key only if it has one.
func (p *Process) causes() *telemetry.Causes {
	names := []string{causeDrawFailing, causeNoScheduler, causeNoWorker, causeWorkerFrozen}
	if p.Settings.Draw.SecretKey != "" {
		names = append([]string{causeDrawKeyWrong}, names...)
	}
	causes := telemetry.NewCauses(p.Logger, p.Registry, names...)
	p.Health.Degrade(causes)
	return causes
}

// watch looks at the whole system until ctx ends. It costs a command of Redis and two queries
// every lookEvery, on the connection of /readyz.
func (p *Process) watch(ctx context.Context, causes *telemetry.Causes) {
	keys, noKey := p.DrawKey()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		found := append(p.lookAtProcesses(ctx), p.lookAtDraws(ctx)...)
		if noKey == nil {
			found = append(found, p.lookAtKeys(ctx, keys)...)
		}
		if ctx.Err() == nil {
			causes.Set(found...)
		}
	}
}

// lookAtProcesses returns nothing while Redis does not say which processes there are.
func (p *Process) lookAtProcesses(ctx context.Context) []telemetry.Cause {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	present, err := queue.ReadPresent(ctx, p.Redis, p.Settings.Redis.Namespace)
	if err != nil {
		return nil
	}
	workers, schedulers := present[queue.RoleWorker], present[queue.RoleScheduler]
	return []telemetry.Cause{
		{Name: causeNoScheduler, Holds: len(schedulers.Alive) == 0},
		{Name: causeNoWorker, Holds: len(workers.Alive) == 0},
		{Name: causeWorkerFrozen, Holds: len(workers.Silent) > 0, Details: []any{"workers", workers.Silent}},
	}
}

// lookAtDraws returns nothing while Postgres does not answer.
func (p *Process) lookAtDraws(ctx context.Context) []telemetry.Cause {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	failing, err := drawrecord.Failing(ctx, p.apart, mostNamed)
	if err != nil {
		return nil
	}
	return []telemetry.Cause{{Name: causeDrawFailing, Holds: len(failing) > 0, Details: []any{"campaigns", failing}}}
}

// lookAtKeys returns nothing while Postgres does not answer.
func (p *Process) lookAtKeys(ctx context.Context, keys keyring.Keyring) []telemetry.Cause {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := draw.CheckKeys(ctx, p.apart, keys)
	wrong := errors.Is(err, keyring.ErrOpen)
	if err != nil && !wrong {
		return nil
	}
	return []telemetry.Cause{{Name: causeDrawKeyWrong, Holds: wrong}}
}
