package main

import (
	"context"
	"slices"
	"strings"
	"time"
)

// scenario is one row of the table. run prepares what it needs, warms up, measures for
// about the given time, checks the results and cleans up.
type scenario struct {
	name string
	run  func(ctx context.Context, s *setup, measured time.Duration) (result, error)
}

// scenarios are in the order of a round. Those that are compared follow each other.
var scenarios = slices.Concat(throughput, growth, drawScenarios, disturbanceScenarios())

// throughput are the scenarios that measure how much the system does, and how soon.
var throughput = []scenario{
	{"documents-rr", documents{isolation: "REPEATABLE READ"}.run},
	{"documents-rc", documents{isolation: "READ COMMITTED"}.run},
	{"asynq-empty", runEmptyTasks},
	{"set-based", runSetBased},
	{"guard", runGuard},
	{"triprize-http", crowdedSale{offer: hot}.run},
	{"silent", crowdedSale{offer: hot, env: []string{"TRIPRIZE_LOG_LEVEL=error"}}.run},
	{"traced", crowdedSale{offer: hot, traced: true}.run},
	{"random", crowdedSale{offer: hot, pairs: randomPair}.run},
	{"adjacent", crowdedSale{offer: hot, pairs: adjacentPair}.run},
	{"first-minute", runFirstMinute},
	{"webhooks", eventSale},
	{"idle-fleet", runIdleFleet},
	{"triprize-http-wallet", crowdedSale{offer: func(measured time.Duration) offer { return byWallet(measured, walletPayers) }, payers: walletPayers}.run},
	{"cards-alone", besideCards{cardBuyers: enoughCardBuyers}.run},
	{"wallet-beside-nothing", besideCards{walletBuyers: connections}.run},
	{"wallet-beside-cards", besideCards{walletBuyers: connections, cardBuyers: enoughCardBuyers}.run},
	{"triprize-http-2workers", crowdedSale{offer: hot, workers: 2}.run},
	{"triprize-http-100campaigns", crowdedSale{offer: hundred}.run},
	{"sold-out-storm", runStorm},
	{"idle-latency", crowdedSale{offer: hot, buyers: 1}.run},
	{"half-load", runHalfLoad},
	{"cold-crowd", runColdCrowd},
	{"transfers-alone", walletCommands{wallets: 1000, alone: true}.run},
	{"transfers", walletCommands{wallets: 1000}.run},
	{"hot-wallet-alone", walletCommands{wallets: 1, alone: true}.run},
	{"hot-wallet", walletCommands{wallets: 1}.run},
	{"hot-wallet-2batchers", walletCommands{wallets: 1, batchers: 2}.run},
	{"wallet-10-events", walletCommands{wallets: 1, alone: true, callers: 1, events: 10}.run},
	{"wallet-1M-events", walletCommands{wallets: 1, alone: true, callers: 1, events: 1_000_000}.run},
	{"hold-latency", runHolds},
	{"hold-crowd", holdCrowd{locks: true}.run},
	{"hold-crowd-unlocked", holdCrowd{}.run},
	{"read-job", reads{path: (*system).jobPath}.run},
	{"read-campaign", reads{path: (*system).campaignPath}.run},
}

func names() []string {
	list := make([]string, len(scenarios))
	for i, s := range scenarios {
		list[i] = s.name
	}
	return list
}

// result is what one scenario measured in one round.
type result struct {
	PerSecond float64  // of what the scenario counts
	P50       float64  // ms
	P95       float64  // ms
	P99       float64  // ms
	Figures   []figure // further numbers
	wrong     []string // errors in answers or in the database
}

// figure is a further number of a scenario, with its name.
type figure struct {
	Name  string
	Value float64
}

// newResult computes the rate and the quantiles of a measurement. It sorts took.
func newResult(done int, elapsed time.Duration, took []time.Duration) result {
	slices.Sort(took)
	return result{PerSecond: perSecond(done, elapsed),
		P50: milliseconds(quantile(took, 50)), P95: milliseconds(quantile(took, 95)), P99: milliseconds(quantile(took, 99))}
}

func (r *result) note(name string, value float64) {
	r.Figures = append(r.Figures, figure{name, value})
}

// cpuOfEach is the figure with the CPU time of each thing done.
const cpuOfEach = "µs of cpu each"

// noteUsage notes the CPU time of our processes for each of the n things done while the
// window was open, and of each group: on a shared machine that time varies less than any
// rate. It notes how many cores each group used, and the most memory that an api and a worker
// have had.
func (r *result) noteUsage(w *window, n int) {
	each := func(cores float64) float64 { return cores * w.elapsed.Seconds() / float64(n) * 1e6 }
	var ours float64
	var parts []figure
	for _, f := range w.cpu {
		if f.Name != cpuOthers && f.Name != cpuStolen && n > 0 {
			ours += f.Value
			parts = append(parts, figure{"µs " + strings.TrimPrefix(f.Name, cpuOf), each(f.Value)})
		}
	}
	if ours > 0 {
		r.note(cpuOfEach, each(ours))
		r.Figures = append(r.Figures, parts...)
	}
	r.Figures = append(append(r.Figures, w.cpu...), w.memory...)
}

// quantile returns the value that p percent of the sorted values lie below.
func quantile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func perSecond(n int, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(n) / elapsed.Seconds()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
