package servers

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Counted returns the sum of a counter, a gauge, or the observations of a histogram, over the series that have a label of this value; an empty one is any.
func Counted(t testing.TB, registry prometheus.Gatherer, name, label string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	NoError(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && (label == "" || strings.Contains(metric.String(), `value:"`+label+`"`)) {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
