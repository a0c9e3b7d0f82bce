package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/store/webhook"
)

// disturbance measures purchases in a quiet campaign, and again while another caller, or the
// scheduler, does something. Both are measured in one run, on the same processes.
type disturbance struct {
	name    string
	memory  bool          // it is about the memory of the api
	refused bool          // every request is the other caller's own fault
	call    time.Duration // of the provider of cards; 0: there is none
	events  bool          // it is about how long events take to arrive, not purchases
	expired int           // jobs whose retention is over, which no scheduler deletes before; see deleteExpired

	before  func(ctx context.Context, d *disturber) error                  // what both measurements need; nil: nothing
	disturb func(ctx context.Context, d *disturber)                        // until ctx ends
	after   func(ctx context.Context, d *disturber, r *result) (err error) // nil: nothing
}

// disturbances are those by other callers.
var disturbances = []disturbance{
	{name: "cancellations", before: buyAnother, disturb: cancelOne},
	{name: "releases", disturb: releaseHolds},
	{name: "locked-campaign", before: holdAll, disturb: lockAndRelease},
	{name: "large-bodies", memory: true, // 1 MB with many faults
		disturb: posting(`{"selection":{"positions":[0` + strings.Repeat(",0", 500_000) + `]},"payment":{"method":"external"}}`)},
	{name: "no-readers", memory: true, disturb: neverRead},
	{name: "half-posts", memory: true, disturb: sendHalfPosts},
	{name: "anonymous", memory: true, disturb: readAnonymously},
	{name: "odd-keys", refused: true, disturb: sendOddKeys},
	{name: "stream-churn", disturb: churnStreams},
	{name: "malformed", refused: true, disturb: posting(`{"selection":{"quantity":"many"},"payment":{"method":"shells"}}`)},
	{name: "many-positions", memory: true, // 975 kB, well-formed
		disturb: posting(`{"selection":{"positions":[` + onePosition + strings.Repeat(","+onePosition, 975_000/(len(onePosition)+1)) + `]},"payment":{"method":"external"}}`)},
	{name: "viewers", memory: true, before: keepSelling, disturb: viewSale},
	{name: "user-boards", memory: true, disturb: readBoards},
	{name: "wrong-keys", refused: true, disturb: sendWrongKeys},
	{name: "reads", disturb: readLists},
	{name: "webhook-hog", events: true, before: openEndpoints, disturb: hogWebhooks},
	{name: "flooding-app", before: buyAnother, disturb: floodCancellations},
	{name: "slow-provider", call: slowProvider, disturb: buyByCard},
}

const onePosition = `{"layer":1,"column":1}`

func disturbanceScenarios() (list []scenario) {
	for _, d := range disturbances {
		list = append(list, scenario{disturbancePrefix + d.name, d.run})
	}
	return list
}

func disturbanceClaims() (list []claim) {
	for _, d := range disturbances {
		name := disturbancePrefix + d.name
		list = append(list, claim{name + ": p95, disturbed / quiet", "at most 2", name, "", disturbedP95})
		if d.memory {
			list = append(list, claim{name + ": api, MiB at most", "below 250", name, "", apiPeak})
		}
		if d.refused {
			list = append(list, claim{name + ": answers 5xx a second", "0", name, "", answers5xx})
		}
	}
	return list
}

// Names of figures.
const (
	disturbancePrefix = "stranger/"
	disturbedP50      = "median, disturbed / quiet (%)"
	disturbedP95      = "p95, disturbed / quiet"
	apiPeak           = "api MiB, highest"
	answersOf         = "stranger's %dxx/s"
	answers5xx        = "stranger's 5xx/s"
)

// The campaigns of these scenarios.
const (
	quietCampaign = iota // that the yardstick buys from
	noisyCampaign        // that the other caller is busy with
	noisyBase     = 200  // of both: 20,100 positions, more than anybody buys
)

// runUp is how long a disturbance goes on before it is measured.
const runUp = 500 * time.Millisecond

func (one disturbance) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	o := offer{fmt.Sprintf("template_quiet_and_noisy_%d", one.expired), []int{noisyBase, noisyBase},
		func(ctx context.Context, db *pgxpool.Pool) error {
			return fillJobs(ctx, db, one.expired, -20*24*time.Hour)
		}}
	return s.onSale(ctx, o, func(sys *system) (result, error) { return one.measure(ctx, sys, measured) })
}

func (one disturbance) measure(ctx context.Context, sys *system, measured time.Duration) (r result, err error) {
	y := yardstick{key: sys.setup.appKey, campaign: sys.campaigns[quietCampaign]}
	if one.events {
		y.heard = hear()
		defer y.heard.Close()
		if err := sys.listen(ctx, "bench", y.heard.URL, webhook.PurchaseCompleted); err != nil {
			return r, err
		}
	}
	if err := one.serve(ctx, sys); err != nil {
		return r, err
	}
	y.address = sys.address
	all, stop := context.WithCancel(ctx)
	d := &disturber{sys: sys}
	defer d.group.Wait()
	defer stop()
	if one.before != nil {
		if err := one.before(all, d); err != nil {
			return r, err
		}
	}
	if _, err := y.measure(ctx, warmUp(measured)); err != nil {
		return r, err
	}
	idle := cpuOfLoad()
	quiet, err := y.measure(ctx, measured)
	if err != nil {
		return r, err
	}
	began := cpuOfLoad()
	mem := watchMemory(all, sys.fleet.APIs[0].PID())
	disturbed, err := one.whileDisturbed(all, d, y, measured)
	if err != nil {
		return r, err
	}
	r = compare(quiet, disturbed, measured)
	r.note("stranger's load, cores", max(0, (cpuOfLoad()-began-(began-idle)).Seconds())/(runUp+measured).Seconds())
	first, peak := mem.end()
	stop()
	d.group.Wait()
	r.note(apiPeak, peak)
	r.note("api MiB grown", peak-first)
	d.note(&r, measured)
	if one.after != nil {
		err = one.after(ctx, d, &r)
	} else if sys.provider != nil {
		r.wrong, err = sys.finalizeCards(ctx, &r)
	}
	if err != nil {
		return r, err
	}
	r.wrong = slices.Concat(r.wrong, d.odd, sys.stop(), sys.violations(ctx))
	return r, nil
}

// cpuOfLoad is the processor's time that this program, with all load, has taken.
func cpuOfLoad() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// serve starts the processes, and the provider of cards, if there is one.
func (one disturbance) serve(ctx context.Context, sys *system) error {
	switch {
	case one.call > 0:
		return sys.serveCards(ctx, one.call, trustedTokens()...)
	case one.events:
		return sys.serve(ctx, 1, append(trustedTokens(), "TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8")...)
	case one.expired > 0:
		return sys.serveUnswept(ctx, 1)
	}
	return sys.serve(ctx, 1, trustedTokens()...)
}

// whileDisturbed measures while the other caller is busy, and stops it at the end of the
// measurement: answers may come later.
func (one disturbance) whileDisturbed(ctx context.Context, d *disturber, y yardstick, measured time.Duration) (observedPurchases, error) {
	busy, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { one.disturb(busy, d) })
	defer group.Wait()
	defer end()
	defer time.AfterFunc(runUp+measured, end).Stop()
	wait(ctx, runUp, nil)
	return y.measure(ctx, measured)
}

// compare is the result: the disturbed purchases, and how much slower they are.
func compare(quiet, disturbed observedPurchases, measured time.Duration) result {
	slices.Sort(quiet.took)
	r := newResult(len(disturbed.took), measured, disturbed.took)
	p50, p95 := milliseconds(quantile(quiet.took, 50)), milliseconds(quantile(quiet.took, 95))
	r.note("quiet p50 ms", p50)
	r.note("quiet p95 ms", p95)
	r.note(disturbedP50, 100*divide(r.P50, p50))
	r.note(disturbedP95, divide(r.P95, p95))
	r.note("longest ms", milliseconds(quantile(disturbed.took, 100)))
	r.note("purchases refused or cut", float64(disturbed.refused+quiet.refused))
	r.note("purchases without an answer", float64(disturbed.unanswered))
	return r
}
