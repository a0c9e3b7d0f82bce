package worker

import (
	"log/slog"
	"sync"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// traces knows of which trace (W3C Trace Context) a job in hand is, if its request came
// with one, so that what is logged of the job can be found by it. A job whose task was lost
// is in no trace any more: the outbox does not keep it.
type traces struct {
	mu   sync.Mutex
	jobs map[uuid.UUID]string
}

func newTraces() *traces { return &traces{jobs: make(map[uuid.UUID]string)} }

// begin notes the traces of jobs, until end is called.
func (t *traces) begin(of map[uuid.UUID]string) (end func()) {
	if len(of) == 0 {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, trace := range of {
		t.jobs[id] = trace
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for id := range of {
			delete(t.jobs, id)
		}
	}
}

// of returns the trace of a job as an attribute of a log line; nothing if it has none.
func (t *traces) of(id uuid.UUID) []any {
	t.mu.Lock()
	defer t.mu.Unlock()
	if trace, ok := t.jobs[id]; ok {
		return []any{"trace_id", trace}
	}
	return nil
}

// logFinalized logs the outcomes of jobs that are in traces.
func (w *Worker) logFinalized(kind job.Kind, outcomes []job.Outcome) {
	for _, o := range outcomes {
		trace := w.traces.of(o.ID)
		if len(trace) == 0 {
			continue
		}
		outcome := "succeeded"
		if o.Problem != nil {
			outcome = string(o.Problem.Code)
		}
		w.logger.Debug("job finalized", append(trace, slog.Any("job", o.ID), slog.Any("kind", kind), slog.String("outcome", outcome))...)
	}
}
