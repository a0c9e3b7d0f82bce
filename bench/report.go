package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is everything that was measured.
type report struct {
	Cores     int      `json:"cores"`
	Go        string   `json:"go"`
	Rounds    int      `json:"rounds"`
	Seconds   float64  `json:"seconds"`
	Scenarios []*row   `json:"scenarios"`
	Ratios    []ratio  `json:"ratios"`
	Wrong     []string `json:"wrong"`

	json bool
}

// row is one scenario: the medians of its rounds.
type row struct {
	Name      string             `json:"name"`
	PerSecond spread             `json:"per_second"`
	P50       float64            `json:"p50_ms"`
	P95       float64            `json:"p95_ms"`
	P99       float64            `json:"p99_ms"`
	Figures   map[string]float64 `json:"figures"`

	rounds []result
}

// ratio is a claim as it was measured.
type ratio struct {
	Name   string `json:"name"`
	Target string `json:"target"`
	spread
}

// spread is the median of rounds with the lowest and the highest.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return spread{median, sorted[0], sorted[len(sorted)-1]}
}

func newReport(opts options) *report {
	return &report{Cores: runtime.NumCPU(), Go: runtime.Version(), Rounds: opts.rounds, Seconds: opts.seconds.Seconds(), Wrong: []string{}, Ratios: []ratio{}, json: opts.json}
}

func (r *report) add(name string, one result) {
	for _, w := range one.wrong {
		r.Wrong = append(r.Wrong, name+": "+w)
	}
	if r.row(name) == nil {
		r.Scenarios = append(r.Scenarios, &row{Name: name})
	}
	found := r.row(name)
	found.rounds = append(found.rounds, one)
}

func (r *report) row(name string) *row {
	i := slices.IndexFunc(r.Scenarios, func(one *row) bool { return one.Name == name })
	if i < 0 {
		return nil
	}
	return r.Scenarios[i]
}

// of returns a figure of each round.
func (r *row) of(name string) []float64 {
	values := make([]float64, len(r.rounds))
	for i, one := range r.rounds {
		values[i] = one.figures[name]
	}
	return values
}

func (r *row) work() {
	r.PerSecond, r.Figures = spreadOf(r.of(rate)), make(map[string]float64)
	for _, one := range r.rounds {
		for name := range one.figures {
			r.Figures[name] = spreadOf(r.of(name)).Median
		}
	}
	r.P50, r.P95, r.P99 = r.Figures[median], r.Figures[p95], r.Figures[p99]
	for _, name := range []string{rate, median, p95, p99} {
		delete(r.Figures, name)
	}
}

// compare computes the claims whose scenarios were run. It divides within each round, where
// the machine was about equally fast for both sides, and takes the median.
func (r *report) compare() {
	for _, c := range claims {
		over, under := r.row(c.over), r.row(c.under)
		if over == nil || c.under != "" && under == nil {
			continue
		}
		values := over.of(c.of)
		if under != nil {
			for i, below := range under.of(c.of) {
				values[i] = divide(values[i], below)
			}
		}
		r.Ratios = append(r.Ratios, ratio{c.name, c.target, spreadOf(values)})
	}
}

// print computes medians and ratios and writes the report.
func (r *report) print(out io.Writer) error {
	for _, one := range r.Scenarios {
		one.work()
	}
	r.compare()
	if r.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	fmt.Fprintf(out, "%d cores, %s, %d rounds of %g s each, medians\n\n", r.Cores, r.Go, r.Rounds, r.Seconds)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "scenario\tper second\t(min – max)\tp50 ms\tp95 ms\tp99 ms")
	for _, one := range r.Scenarios {
		rates := one.PerSecond
		fmt.Fprintf(t, "%s\t%.0f\t%.0f – %.0f\t%.1f\t%.1f\t%.1f\n", one.Name, rates.Median, rates.Min, rates.Max, one.P50, one.P95, one.P99)
	}
	fmt.Fprintf(t, "\nnotes (cpu: cores in use, of %d)\n", r.Cores)
	for _, one := range r.Scenarios {
		fmt.Fprintf(t, "%s\t%s\n", one.Name, one.notes())
	}
	fmt.Fprintln(t, "\nratio\tmeasured\t(min – max)\ttarget")
	for _, one := range r.Ratios {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f – %.2f\t%s\n", one.Name, one.Median, one.Min, one.Max, one.Target)
	}
	for _, w := range r.Wrong {
		fmt.Fprintln(t, "\nWRONG:", w)
	}
	return t.Flush()
}

func (r *row) notes() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		parts = append(parts, fmt.Sprintf("%s %.4g", name, r.Figures[name]))
	}
	return strings.Join(parts, ", ")
}
