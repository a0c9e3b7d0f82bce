package stream

import (
	"runtime"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
)

func opened(t *testing.T, l *Limit, client string) (release func()) {
	t.Helper()
	release, err := l.Acquire(client)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func refused(t *testing.T, l *Limit, client string, want fault.Code) {
	t.Helper()
	if _, err := l.Acquire(client); fault.CodeOf(err) != want {
		t.Errorf("one more stream of %s: %v, want %s", client, err, want)
	}
}

func TestStreamsAreLimitedPerClientAndInAll(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	l := NewLimit(config.Streams{MaxOpen: 3, MaxPerClient: 2}, registry)
	release := opened(t, l, "a")
	opened(t, l, "a")
	refused(t, l, "a", fault.RateLimited)
	opened(t, l, "b")
	refused(t, l, "b", fault.Overloaded)
	refused(t, l, "a", fault.RateLimited)
	exported, err := registry.Gather()
	if err != nil || len(exported) != 1 || exported[0].GetName() != "triprize_streams_open" || exported[0].GetMetric()[0].GetGauge().GetValue() != 3 {
		t.Errorf("exported: %v, %v", exported, err)
	}
	release()
	release() // counts once
	if l.Open() != 2 {
		t.Errorf("%d are open", l.Open())
	}
	opened(t, l, "a")
	refused(t, l, "c", fault.Overloaded)
}

func TestAClientWithoutStreamsIsForgotten(t *testing.T) {
	t.Parallel()
	l := NewLimit(config.Streams{MaxOpen: 3, MaxPerClient: 2}, prometheus.NewRegistry())
	first, second := opened(t, l, "a"), opened(t, l, "a")
	first()
	if len(l.clients) != 1 {
		t.Error("forgotten with a stream open")
	}
	second()
	refusedByAll := NewLimit(config.Streams{MaxOpen: 0, MaxPerClient: 2}, prometheus.NewRegistry())
	refused(t, refusedByAll, "b", fault.Overloaded)
	if len(l.clients) != 0 || len(refusedByAll.clients) != 0 {
		t.Errorf("remembered: %v, %v", l.clients, refusedByAll.clients)
	}
}

func TestClientsThatComeTogetherNeverHaveMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	l := NewLimit(config.Streams{MaxOpen: 10, MaxPerClient: 4}, prometheus.NewRegistry())
	var mu sync.Mutex
	var open, most int
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		open += by
		most = max(most, open)
	}
	var all sync.WaitGroup
	for i := range 40 {
		client := string(rune('a' + i%4))
		all.Go(func() {
			for range 100 {
				release, err := l.Acquire(client)
				if err != nil {
					runtime.Gosched()
					continue
				}
				count(1)
				runtime.Gosched() // let others try
				count(-1)
				release()
			}
		})
	}
	all.Wait()
	if most > 10 || most == 0 || l.Open() != 0 {
		t.Errorf("at most %d at once, %d at the end", most, l.Open())
	}
}
