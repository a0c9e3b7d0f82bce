package devkit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"triprize.example/client"
)

func TestTheDemosOfferWhatTheySay(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ positions, base, prizes int }{"triangle": {210, 20, 20}, "hall": {120, 0, 6}, "raffle": {10_000, 0, 100}} {
		o, err := demoOffer(name, 20)
		if err != nil || o.form.Count() != want.positions || o.form.BaseLength() != want.base || o.prizes != want.prizes || want.positions%o.each != 0 {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	if _, err := demoOffer("pyramid", 20); err == nil || !strings.Contains(err.Error(), "triangle, hall or raffle") {
		t.Errorf("a shape that nobody knows: %v", err)
	}
}

func TestADemoCountsAnswersAndNamesBrokenPromises(t *testing.T) {
	t.Parallel()
	failed := func(code string) client.Job {
		return client.Job{State: client.JobStateFailed, Problem: &client.Problem{Code: code}}
	}
	sold := purchaseAnswer{job: client.Job{State: client.JobStateSucceeded}, took: 2 * time.Millisecond}
	refused := purchaseAnswer{job: failed("sold-out"), took: time.Millisecond}
	late := purchaseAnswer{err: &client.Error{Problem: client.Problem{Code: "sold-out", Status: 409}}}
	busy := purchaseAnswer{err: &client.Error{Problem: client.Problem{Code: "overloaded", Status: 503}}}
	other := purchaseAnswer{job: failed("campaign-not-on-sale")}
	silent := purchaseAnswer{err: errors.New("no answer came")}
	for name, c := range map[string]struct {
		answers []purchaseAnswer
		wrong   []string
	}{
		"all is well":        {[]purchaseAnswer{sold, refused, sold}, nil},
		"too late for a job": {[]purchaseAnswer{sold, late, sold}, nil},
		"not served":         {[]purchaseAnswer{sold, busy, sold}, []string{"a buyer got no final answer", "0 buyers were told sold-out"}},
		"sold too often":     {[]purchaseAnswer{sold, sold, sold}, []string{"3 purchases succeeded, 2 should have", "0 buyers were told sold-out, 1 should have been"}},
		"sold too rarely":    {[]purchaseAnswer{sold, refused, refused}, []string{"1 purchases succeeded, 2 should have", "2 buyers were told sold-out"}},
		"another reason":     {[]purchaseAnswer{sold, sold, other}, []string{"0 buyers were told sold-out, 1 should have been: map[campaign-not-on-sale:1]"}},
		"a missing outcome":  {[]purchaseAnswer{sold, sold, silent}, []string{"a buyer got no final answer: no answer came", "0 buyers were told sold-out"}},
	} {
		d := &demo{offer: offer{each: 1}, buyers: 3, report: demoReport{Positions: 2, DurationMS: 500}}
		d.count(c.answers)
		if len(d.wrong) != len(c.wrong) {
			t.Errorf("%s: %v", name, d.wrong)
			continue
		}
		for i, want := range c.wrong {
			if !strings.Contains(d.wrong[i], want) || !strings.Contains(d.complaints(), "  - "+want) {
				t.Errorf("%s: %q does not say %q", name, d.complaints(), want)
			}
		}
		if name == "all is well" && (d.report.Accepted != 3 || d.report.Rejected != 1 || d.report.PurchasesPerSecond != 4 || d.report.LatencyMS != latency{2, 2, 2}) {
			t.Errorf("%s: %+v", name, d.report)
		}
	}
}
