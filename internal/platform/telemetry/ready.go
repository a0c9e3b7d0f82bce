package telemetry

import (
	"context"
	"sync"
	"time"
)

// Check is one thing a process needs.
type Check struct {
	Name     string
	Required bool // without it the process is not ready; otherwise it is degraded
	Probe    func(ctx context.Context) error
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Status string            `json:"status"` // ok, degraded, or unavailable
	Checks map[string]string `json:"checks"` // ok, or what is wrong
}

// The words of Readiness.Status.
const (
	StatusOK          = "ok"
	StatusDegraded    = "degraded"
	StatusUnavailable = "unavailable"
)

// probeTimeout bounds every probe of a /readyz, and so all of them, as they run
// at the same time: what hangs takes nothing from the others.
const probeTimeout = 2 * time.Second

// Probe runs every check, and returns when all are done.
func Probe(ctx context.Context, checks []Check) Readiness {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	ready := Readiness{Status: StatusOK, Checks: make(map[string]string, len(checks))}
	errs := make([]error, len(checks))
	var probes sync.WaitGroup
	for i, check := range checks {
		probes.Go(func() { errs[i] = check.Probe(ctx) })
	}
	probes.Wait()
	for i, check := range checks {
		if errs[i] == nil {
			ready.Checks[check.Name] = StatusOK
			continue
		}
		ready.Checks[check.Name] = StatusUnavailable // the reason is for logs, not for whoever may ask here
		if check.Required {
			ready.Status = StatusUnavailable
		} else if ready.Status == StatusOK {
			ready.Status = StatusDegraded
		}
	}
	return ready
}
