package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"
)

type sweepView struct {
	Name       string
	LastReport *sweepReport `json:"last_report"`
}

type sweepReport struct {
	Sweep     string
	StartedAt time.Time `json:"started_at"`
	Counts    map[string]int
	Error     string
}

func (s *system) sweeps() []sweepView {
	s.t.Helper()
	a := s.do(0, s.operator, http.MethodGet, "/v1/sweeps", nil, nil)
	var list struct{ Sweeps []sweepView }
	if err := json.Unmarshal(a.body, &list); err != nil || a.status != http.StatusOK {
		s.t.Fatal(a, err)
	}
	return list.Sweeps
}

func TestOperatorsSeeSweepsAndRunThem(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	var names []string
	for _, sweep := range s.sweeps() {
		names = append(names, sweep.Name)
		if sweep.LastReport != nil {
			t.Errorf("%s has run: %+v", sweep.Name, sweep.LastReport)
		}
	}
	if !slices.Contains(names, "lost-jobs") || !slices.Contains(names, "old-records") {
		t.Fatalf("there are %v", names)
	}
	before := time.Now().Add(-time.Minute)
	for _, name := range names {
		a := s.do(0, s.operator, http.MethodPost, "/v1/sweeps/"+name, nil, nil)
		var report sweepReport
		if err := json.Unmarshal(a.body, &report); err != nil || a.status != http.StatusOK || report.Sweep != name || report.Error != "" || report.Counts == nil {
			t.Errorf("%s: %v %s, %v", name, a, a.body, err)
		}
	}
	for _, sweep := range s.sweeps() {
		if sweep.LastReport == nil || sweep.LastReport.Sweep != sweep.Name || sweep.LastReport.StartedAt.Before(before) {
			t.Errorf("%s: %+v", sweep.Name, sweep.LastReport)
		}
	}
	if a := s.do(0, s.operator, http.MethodPost, "/v1/sweeps/dust", nil, nil); a.status != http.StatusNotFound {
		t.Errorf("a sweep that there is not: %v", a)
	}
}
