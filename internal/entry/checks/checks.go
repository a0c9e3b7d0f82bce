// Package checks has what may be wrong with an installation: how it is measured, judged and alerted.
//
// [All] is the one table. GET /v1/status shows the checks that have a name; deploy/prometheus/rules.yml is generated from
// those that alert (make generate). What both measure is read once, see [Reading].
package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// State is the state of a check.
type State string

// The states, from the best to the worst. Critical is an alert with the severity page; a warning is one with the severity
// ticket, or has none; the others alert nobody.
const (
	OK       State = "ok"
	Info     State = "info"
	Unknown  State = "unknown"
	Warning  State = "warning"
	Critical State = "critical"
)

// Rank orders states: the worst has the highest.
func (s State) Rank() int { return slices.Index([]State{OK, Info, Unknown, Warning, Critical}, s) }

// Check is something that may be wrong. The api measures a check with an Expr by its gauges, see [Check.Measure], except sweeps,
// provider_permissions and given_up (jobs accepted in the last 15 minutes): those, and all without From or Expr, it counts itself.
type Check struct {
	Name  string // in GET /v1/status; empty: only Prometheus sees it
	From  string // the server that has its value; empty: this process has it
	State State  // while it is wrong
	Group string // of alerts, and the page of their runbooks
	Alert string // and its section there; of one without an alert, the section that helps
	For   string // how long it is wrong before Prometheus alerts, and "+" how long the alert then stays. The api may show it at once
	Expr  string // in PromQL; without one, or of an Info, there is no alert
	Text  string // a template of Prometheus
}

// Runbook returns the page and section.
func (c Check) Runbook() string {
	return strings.Replace(c.Group, "objectives", "sales", 1) + ".md#" + strings.ToLower(c.Alert)
}

// Value is what was measured. More than Bound is wrong.
type Value struct {
	Number, Bound float64
	Label         string    // what is above the bound
	Since         time.Time // if the number is an age
}

// bounded are the expressions that compare a gauge with a bound: that is done here, too.
var bounded = regexp.MustCompile(`^(time\(\) - )?(?:max|min)(?: by \(\w+\) )?\(triprize_(\w+)(?:\{\w+(!?)[=~]+"([\w|-]+)"\})?\) > ([\d.]+)( \* 60)?$`)

// Measure returns what is above the bound: the highest age, or the sum of the counts of all labels that are above it. It is unknown
// if nothing was read, or the check is measured in another way.
func (c Check) Measure(r *Reading, now time.Time) (v Value, known bool) {
	parts := bounded.FindStringSubmatch(c.Expr)
	if parts == nil {
		return v, false
	}
	isAge, name, not, of := parts[1] != "", parts[2], parts[3] != "", strings.Split(parts[4], "|")
	if v.Bound, _ = strconv.ParseFloat(parts[5], 64); parts[6] != "" {
		v.Bound *= 60
	}
	var labels []string
	for _, g := range r.gauges {
		label := strings.Join(g.labels, "")
		if g.name != name || parts[4] != "" && slices.Contains(of, label) == not {
			continue
		}
		number := g.value
		if isAge {
			number = float64(now.UnixMilli())/1000 - number
		}
		switch known = true; {
		case number <= v.Bound:
			continue
		case strings.HasSuffix(name, "seconds"):
			v.Number = max(v.Number, number)
		default:
			v.Number += number
		}
		labels = append(labels, label)
	}
	if v.Label = strings.Join(labels, ", "); strings.HasSuffix(name, "seconds") {
		v.Since = now.Add(-time.Duration(v.Number * float64(time.Second)))
	}
	return v, known
}

var placeholder = regexp.MustCompile(`\{\{ \$(value|labels)[^}]*\}\}`)

// Describe returns the text with a value.
func (c Check) Describe(v Value) string {
	return placeholder.ReplaceAllStringFunc(c.Text, func(part string) string {
		switch {
		case strings.Contains(part, "labels"):
			return v.Label
		case strings.Contains(part, "humanizeDuration"):
			return (time.Duration(v.Number) * time.Second).String()
		case strings.Contains(part, "humanizePercentage"):
			return fmt.Sprintf("%.0f %%", 100*v.Number)
		}
		return fmt.Sprintf("%.0f", v.Number)
	})
}
