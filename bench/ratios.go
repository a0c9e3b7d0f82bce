package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// claim is a ratio of two scenarios of one run, or a latency, with its target.
type claim struct {
	name   string
	target string
	over   string // the scenario above the line
	under  string // the one below it; empty: the claim is about one scenario
	of     string // the figure that is compared; empty: the rate, or of one scenario the median latency in ms
}

// claims are the targets that these scenarios measure.
var claims = []claim{
	{"triprize-http / documents-rr", "at least 30 now, 60 in the end", "triprize-http", "documents-rr", ""},
	{"triprize-http / documents-rc", "at least 25", "triprize-http", "documents-rc", ""},
	{"triprize-http / asynq-empty", "at least 1.3", "triprize-http", "asynq-empty", ""},
	{"triprize-http / set-based", "at least 0.4", "triprize-http", "set-based", ""},
	{"cpu of a purchase / set-based", "at most 4", "triprize-http", "set-based", cpuOfEach},
	{"share of checks, keys and limits", "at most 0.15", "triprize-http", "guard", ""},
	{"100campaigns / http", "at least 0.8", "triprize-http-100campaigns", "triprize-http", ""},
	{"2workers / http", "at least 0.9", "triprize-http-2workers", "triprize-http", ""},
	{"storm rejections / http purchases", "at least 3", "sold-out-storm", "triprize-http", ""},
	{"http with webhooks / http", "at least 0.8", "webhooks", "triprize-http", ""},
	{"logged and traced / silent", "at least 0.97", "traced", "silent", ""},
	{"cpu of a purchase, logged and traced / silent", "at most 1.03", "traced", "silent", cpuOfEach},
	{"adjacent / random", "at least 0.5", "adjacent", "random", ""},
	{"first minute: lowest window / after ANALYZE", "at least 0.9", "first-minute", "", lowestWindow},
	{"first minute: postgres' cpu, dearest / after ANALYZE", "at most 1.2", "first-minute", "", dearestWindow},
	{"events told a second, afterwards", "at least 1,000", "webhooks", "", toldAfterwards},
	{"an event to its receiver, median, ms", "at most 50", "webhooks", "", toldP50},
	{"http by wallet / documents-rr", "at least 60 in the end", "triprize-http-wallet", "documents-rr", ""},
	{"http by wallet / http external", "no target", "triprize-http-wallet", "triprize-http", ""},
	{"by wallet, beside cards / beside nothing", "at least 0.9", "wallet-beside-cards", "wallet-beside-nothing", ""},
	{"sold by card a second meanwhile", "about 20", "wallet-beside-cards", "", cardsPerSecond},
	{"transfers / one transaction each", "at least 2", "transfers", "transfers-alone", ""},
	{"hot wallet / one transaction each", "no target", "hot-wallet", "hot-wallet-alone", ""},
	{"a command on 10 events / on 1 M", "at most 1.5", "wallet-10-events", "wallet-1M-events", ""},
	{"idle median, ms", "at most 15", "idle-latency", "", ""},
	{"half load: 202 p99, ms", "at most 50", "half-load", "", accepted99},
	{"half load: final p95, ms", "at most 150", "half-load", "", p95},
	{"cold crowd of 500: p95, ms", "at most 250", "cold-crowd", "", p95},
	{idleWorkerCPU, "below 1", "idle-fleet", "", idleWorkerCPU},
	{idleWorkerCommands, "below 20", "idle-fleet", "", idleWorkerCommands},
	{idleAPICPU, "below 1", "idle-fleet", "", idleAPICPU},
	{idleSchedulerCPU, "below 1", "idle-fleet", "", idleSchedulerCPU},
	{idleRedisAloneCPU, "–", "idle-fleet", "", idleRedisAloneCPU},
	{idleRedisCPU, "below 3", "idle-fleet", "", idleRedisCPU},
	{"http beside 50 idle workers / http", "no target", "idle-fleet", "triprize-http", ""},
	{"rows written, lock / none", "below 1", "hold-crowd", "hold-crowd-unlocked", rowsOfCrowd},
	{"postgres' cpu, lock / none", "below 1", "hold-crowd", "hold-crowd-unlocked", postgresOfCrowd},
	{"transactions, lock / none", "–", "hold-crowd", "hold-crowd-unlocked", transactionsOfCrowd},
	{"reads of a campaign / of a job", "at least 1.5", "read-campaign", "read-job", ""},
	{"time of a crowd, lock / none", "–", "hold-crowd", "hold-crowd-unlocked", timeOfCrowd},
	{"cpu of a purchase, 1 M jobs / 1", "less than 1.3", "1M-jobs", "1-job", cpuOfEach},
	{"cpu of a purchase, 1,000 campaigns / 1", "less than 1.3", "1000-campaigns", "1-campaign", cpuOfEach},
	{"cpu of a purchase, 1,000 on sale / 1", "less than 1.3", "1000-campaigns-on-sale", "triprize-http", cpuOfEach},
	{"cpu of a purchase, 100,000 wallets / 256", "less than 1.3", "100k-wallets", "256-wallets", cpuOfEach},
	{"old-records: jobs deleted a second", "at least 5,600", "old-records", "", deletedEach},
	{"old-records: p95, disturbed / quiet", "at most 2", "old-records", "", disturbedP95},
}

// p95 is the 95th percentile of a scenario's latency, as what a claim is about.
const p95 = "p95"

// ratio is a claim as it was measured.
type ratio struct {
	Name   string `json:"name"`
	Target string `json:"target"`
	spread
}

func perSecondOf(r result) float64 { return r.PerSecond }
func p50Of(r result) float64       { return r.P50 }

// figure returns a figure of a round, 0 when it has none of that name.
func (r result) figure(name string) float64 {
	for _, f := range r.Figures {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}

// ratios computes the claims whose scenarios were run. It divides within each round,
// where the machine was about equally fast for both sides, and takes the median.
func (r *report) ratios() []ratio {
	list := []ratio{}
	for _, c := range slices.Concat(claims, drawClaims, disturbanceClaims()) {
		over, under := r.row(c.over), r.row(c.under)
		if over == nil || c.under != "" && under == nil {
			continue
		}
		value := func(r result) float64 { return r.figure(c.of) }
		switch {
		case c.of == p95:
			value = func(r result) float64 { return r.P95 }
		case c.of == "" && under != nil:
			value = perSecondOf
		case c.of == "":
			value = p50Of
		}
		values := over.of(value)
		if under != nil {
			for i, below := range under.of(value) {
				values[i] = divide(values[i], below)
			}
		}
		list = append(list, ratio{c.name, c.target, spreadOf(values)})
	}
	return list
}

// divide returns 0 when b is 0, because nothing was done in the round.
func divide(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r *report) printRatios(out io.Writer) error {
	if len(r.Ratios) > 0 {
		fmt.Fprintln(out)
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "ratio\tmeasured\t(min – max)\ttarget")
		for _, one := range r.Ratios {
			fmt.Fprintf(t, "%s\t%.2f\t%.2f – %.2f\t%s\n", one.Name, one.Median, one.Min, one.Max, one.Target)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, w := range r.Wrong {
		fmt.Fprintln(out, "\nWRONG:", w)
	}
	return nil
}
