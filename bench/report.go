package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
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
	Figures   []figure           `json:"-"`
	Named     map[string]float64 `json:"figures"`

	rounds []result
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
	return &report{Cores: runtime.NumCPU(), Go: runtime.Version(), Rounds: opts.rounds, Seconds: opts.seconds.Seconds(), Wrong: []string{}, json: opts.json}
}

func (r *report) add(name string, one result) {
	for _, w := range one.wrong {
		r.Wrong = append(r.Wrong, name+": "+w)
	}
	if found := r.row(name); found != nil {
		found.rounds = append(found.rounds, one)
		return
	}
	r.Scenarios = append(r.Scenarios, &row{Name: name, rounds: []result{one}})
}

func (r *report) row(name string) *row {
	i := slices.IndexFunc(r.Scenarios, func(one *row) bool { return one.Name == name })
	if i < 0 {
		return nil
	}
	return r.Scenarios[i]
}

// of returns one value for each round.
func (r *row) of(value func(result) float64) []float64 {
	values := make([]float64, len(r.rounds))
	for i, one := range r.rounds {
		values[i] = value(one)
	}
	return values
}

func (r *row) work() {
	r.PerSecond = spreadOf(r.of(perSecondOf))
	r.P50 = spreadOf(r.of(p50Of)).Median
	r.P95 = spreadOf(r.of(func(one result) float64 { return one.P95 })).Median
	r.P99 = spreadOf(r.of(func(one result) float64 { return one.P99 })).Median
	r.Named = make(map[string]float64)
	for _, one := range r.rounds {
		for _, f := range one.Figures {
			if _, known := r.Named[f.Name]; !known {
				r.Named[f.Name] = spreadOf(r.figures(f.Name)).Median
				r.Figures = append(r.Figures, figure{f.Name, r.Named[f.Name]})
			}
		}
	}
}

// figures returns a figure of those rounds that have it.
func (r *row) figures(name string) (values []float64) {
	for _, one := range r.rounds {
		for _, f := range one.Figures {
			if f.Name == name {
				values = append(values, f.Value)
			}
		}
	}
	return values
}

// print computes medians and ratios and writes the report.
func (r *report) print(out io.Writer) error {
	for _, one := range r.Scenarios {
		one.work()
	}
	r.Ratios = r.ratios()
	if r.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	fmt.Fprintf(out, "%d cores, %s, %d rounds of %g s each, medians\n\n", r.Cores, r.Go, r.Rounds, r.Seconds)
	const cells = "%-28s%12s%18s%10s%10s%10s\n"
	fmt.Fprintf(out, cells, "scenario", "per second", "(min – max)", "p50 ms", "p95 ms", "p99 ms")
	for _, one := range r.Scenarios {
		rates := one.PerSecond
		fmt.Fprintf(out, cells, one.Name, fmt.Sprintf("%.0f", rates.Median), fmt.Sprintf("%.0f – %.0f", rates.Min, rates.Max),
			latency(one.P50), latency(one.P95), latency(one.P99))
	}
	fmt.Fprintf(out, "\nnotes (cpu: cores in use, of %d)\n", r.Cores)
	for _, one := range r.Scenarios {
		fmt.Fprintf(out, "%-28s%s\n", one.Name, one.notes())
	}
	return r.printRatios(out)
}

// latency formats a latency; 0 means that the scenario does not measure it.
func latency(ms float64) string {
	if ms == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", ms)
}

func (r *row) notes() string {
	var parts []string
	for _, f := range r.Figures {
		switch {
		case strings.HasPrefix(f.Name, cpuOf):
			parts = append(parts, fmt.Sprintf("%s %.2f", f.Name, f.Value))
		case f.Value != 0:
			parts = append(parts, fmt.Sprintf("%s %.0f", f.Name, f.Value))
		}
	}
	return strings.Join(parts, ", ")
}
