package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// stranger measures purchases in a quiet campaign, and again while somebody else does
// something. Both are measured in one run, on the same processes.
type stranger struct {
	name    string
	memory  bool                                          // it is about the memory of the api
	refused bool                                          // every request is the stranger's own fault
	call    time.Duration                                 // of the provider of cards; 0: there is none
	before  func(ctx context.Context, d *disturber) error // what both measurements need; nil: nothing
	disturb func(ctx context.Context, d *disturber)       // until ctx ends
}

// strangers are the disturbances.
var strangers = []stranger{
	{name: "cancellations", before: buyOne, disturb: cancelOne},
	{name: "releases", disturb: releaseHolds},
	{name: "locked-campaign", before: holdAll, disturb: lockAndRelease},
	{name: "large-bodies", memory: true, disturb: sendLargeBodies},
	{name: "no-readers", memory: true, disturb: neverRead},
	{name: "half-posts", memory: true, disturb: sendHalfPosts},
	{name: "anonymous", memory: true, disturb: readAnonymously},
	{name: "odd-keys", refused: true, disturb: sendOddKeys},
	{name: "stream-churn", disturb: churnStreams},
	{name: "malformed", refused: true, disturb: sendMalformed},
	{name: "many-positions", memory: true, disturb: sendManyPositions},
	{name: "viewers", memory: true, before: keepSelling, disturb: viewSale},
	{name: "slow-provider", call: slowProvider, disturb: buyByCard},
}

func strangerScenarios() (list []scenario) {
	for _, s := range strangers {
		list = append(list, scenario{strangerPrefix + s.name, s.run})
	}
	return list
}

// strangerClaims are the targets of the strangers.
func strangerClaims() (list []claim) {
	for _, s := range strangers {
		name := strangerPrefix + s.name
		list = append(list, claim{name + ": p95, disturbed / quiet", "at most 2", name, "", disturbedP95})
		if s.memory {
			list = append(list, claim{name + ": api, MiB at most", "below 250", name, "", apiPeak})
		}
		if s.refused {
			list = append(list, claim{name + ": answers 5xx a second", "0", name, "", strangers5xx})
		}
	}
	return list
}

// Names of figures.
const (
	strangerPrefix = "stranger/"
	disturbedP50   = "median, disturbed / quiet (%)"
	disturbedP95   = "p95, disturbed / quiet"
	apiPeak        = "api MiB, highest"
	strangers5xx   = "stranger's 5xx/s"
)

// The campaigns of these scenarios.
const (
	quietCampaign = iota // that the yardstick buys from
	noisyCampaign        // that the stranger is busy with
	strangerBase  = 200  // of both: 20,100 positions, more than anybody buys
)

func quietAndNoisy() offer {
	return offer{"template_quiet_and_noisy", []int{strangerBase, strangerBase}}
}

// runUp is how long a disturbance goes on before it is measured.
const runUp = 500 * time.Millisecond

func (s stranger) run(ctx context.Context, set *setup, measured time.Duration) (r result, err error) {
	sys, err := set.openSale(ctx, quietAndNoisy())
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	if err := s.serve(ctx, sys); err != nil {
		return r, err
	}
	all, stop := context.WithCancel(ctx)
	defer stop()
	d := &disturber{sys: sys}
	defer d.group.Wait()
	defer stop()
	if s.before != nil {
		if err := s.before(all, d); err != nil {
			return r, err
		}
	}
	y := yardstick{address: sys.address, key: set.appKey, campaign: sys.campaigns[quietCampaign]}
	if _, err := y.measure(ctx, warmUp(measured)); err != nil {
		return r, err
	}
	quiet, err := y.measure(ctx, measured)
	if err != nil {
		return r, err
	}
	mem := watchMemory(all, sys.fleet.APIs[0].PID())
	disturbed, err := s.whileDisturbed(all, d, y, measured)
	if err != nil {
		return r, err
	}
	first, peak := mem.end()
	stop()
	d.group.Wait()
	r = compare(quiet, disturbed, measured)
	r.note(apiPeak, peak)
	r.note("api MiB grown", peak-first)
	d.note(&r, measured)
	if sys.provider != nil {
		if r.wrong, err = sys.finalizeCards(ctx, &r); err != nil {
			return r, err
		}
	}
	r.wrong = slices.Concat(r.wrong, d.odd, sys.stop(), sys.violations(ctx))
	return r, nil
}

// serve starts the processes, and the provider of cards, if there is one.
func (s stranger) serve(ctx context.Context, sys *system) error {
	env := trustedTokens()
	if s.call == 0 {
		return sys.serve(ctx, 1, env...)
	}
	cards, err := sys.startProvider(ctx, s.call)
	if err != nil {
		return err
	}
	if err := sys.serve(ctx, 1, append(env, cards...)...); err != nil {
		return err
	}
	return sys.sendWebhooks()
}

// whileDisturbed measures while the stranger is busy, and stops it at the end of the
// measurement: answers may come later.
func (s stranger) whileDisturbed(ctx context.Context, d *disturber, y yardstick, measured time.Duration) (observedPurchases, error) {
	busy, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { s.disturb(busy, d) })
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
