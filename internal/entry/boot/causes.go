package boot

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/keyring"
	"triprize/internal/platform/telemetry"
	"triprize/internal/service/draw"
	"triprize/internal/store/drawrecord"
)

// The causes that degrade the whole system; docs/operations.md says what to do about each.
const (
	causeDrawKeyWrong  = "draw_key_wrong" // of this process
	causeDrawFailing   = "draw_failing"
	causeNoScheduler   = "no_scheduler"
	causeNoWorker      = "no_worker"
	causeSalesStuck    = "sales_stuck"
	causeWorkerFrozen  = "worker_frozen"
	causeWritesFailing = "writes_failing" // of this process
)

// apiName is the name of the process that accepts jobs.
const apiName = "api"

const (
	// lookEvery is how often a process looks at the whole system. The first look comes after
	// it, so that processes that start together find each other.
	lookEvery = 5 * time.Second
	// lookTimeout bounds what one look asks of Postgres, and of Redis. It is shorter than the probe of Postgres
	// for /readyz, which waits for the same connection.
	lookTimeout = time.Second
	// mostNamed is how many campaigns the log names.
	mostNamed = 5
	// stuckAfter is how long a purchase may wait for workers before sales stand still.
	stuckAfter = 15 * time.Second
)

// look is what a look has found. What it could not find out is missing.
type look struct {
	causes []telemetry.Cause
	gauges []prometheus.Metric
}

// causes returns what the process looks for: a wrong draw key only if it has one, and writes
// that fail only as an api.
func (p *Process) causes() *telemetry.Causes {
	names := []string{causeDrawFailing, causeNoScheduler, causeNoWorker, causeSalesStuck, causeWorkerFrozen}
	if p.Settings.Draw.SecretKey != "" {
		names = append([]string{causeDrawKeyWrong}, names...)
	}
	if p.Name == apiName {
		names = append(names, causeWritesFailing)
	}
	causes := telemetry.NewCauses(p.Logger, p.Registry, names...)
	p.Health.Degrade(causes)
	return causes
}

// watch looks at the whole system until ctx ends. Every lookEvery it costs three commands of
// Redis, and some small queries on the connection of /readyz.
func (p *Process) watch(ctx context.Context, causes *telemetry.Causes, gauges *telemetry.Gauges) {
	keys, noKey := p.DrawKey()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		redis, postgres := p.lookAtRedis(ctx), p.lookAtPostgres(ctx)
		found := append(redis.causes, postgres.causes...)
		if noKey == nil {
			found = append(found, p.lookAtKeys(ctx, keys)...)
		}
		if p.Name == apiName {
			found = append(found, telemetry.Cause{Name: causeWritesFailing, Holds: p.Health.WritesFail()})
		}
		if ctx.Err() == nil {
			causes.Set(found...)
			gauges.Set(append(redis.gauges, postgres.gauges...)...)
		}
	}
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

// drawFailing tells of draws that fail again and again.
func (p *Process) drawFailing(ctx context.Context) (telemetry.Cause, error) {
	failing, err := drawrecord.Failing(ctx, p.apart, mostNamed)
	return telemetry.Cause{Name: causeDrawFailing, Holds: len(failing) > 0, Details: []any{"campaigns", failing}}, err
}
