package devkit

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/shape"
	"triprize/internal/store/drawrecord"
)

func TestTheTriangleShowsWhatIsFreeSoldAndWon(t *testing.T) {
	t.Parallel()
	one, two := 1, 2
	purchase := uuid.MustParse("0193b0a8-0000-7000-8000-000000000001")
	d := &demo{offer: offer{form: shape.Triangle(3), each: 1}, owners: map[shape.Position]bool{
		{Layer: 1, Column: 1}: true, {Layer: 2, Column: 1}: true, {Layer: 2, Column: 2}: false, {Layer: 3, Column: 2}: true,
	}}
	d.report = demoReport{Positions: 6, Buyers: 9, Succeeded: 3, Rejected: 2, Draws: 1, DurationMS: 1234, PurchasesPerSecond: 56.7,
		LatencyMS: latency{P50: 1.2, P95: 20.6, P99: 300}, OK: true, Winners: []drawrecord.Winner{
			{Prize: 1, Layer: 1, Column: &one, PurchaseID: &purchase, Name: "A bicycle"},
			{Prize: 2, Layer: 3, Column: &two, PurchaseID: &purchase, Name: "A bell"},
			{Prize: 10, Layer: 2, Name: "A lock"},
		}}
	var out bytes.Buffer
	d.print(&out)
	want := `
    ★ 
   ● · 
  · ★ · 

  ★ won   ● sold   · free

  prize  1  A bicycle                 position 1/1  purchase 0193b0a8-0000-7000-8000-000000000001
  prize  2  A bell                    position 3/2  purchase 0193b0a8-0000-7000-8000-000000000001
  prize 10  A lock                    not awarded

  9 buyers for 6 positions: 3 succeeded, 2 refused, drawn 1 time(s)
  1234 ms, 57 purchases/s, latency p50 1 ms, p95 21 ms, p99 300 ms
  every promise held
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	d.report.OK = false
	out.Reset()
	if d.print(&out); strings.Contains(out.String(), "held") {
		t.Error("broken promises are called kept")
	}
}

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

func TestAHallIsShownInRows(t *testing.T) {
	t.Parallel()
	o, err := demoOffer("hall", 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{offer: o, owners: map[shape.Position]bool{{Layer: 2, Column: 12}: true}}
	var out bytes.Buffer
	d.printBoard(&out, map[shape.Position]bool{{Layer: 1, Column: 1}: true})
	if !strings.HasPrefix(out.String(), "  Row A   ★ · · · · · · · · · · · \n  Row B   · · · · · · · · · · · ● \n") {
		t.Errorf("got\n%s", out.String())
	}
}

func TestAPercentileIsAValueThatSoManyDoNotExceed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 7, 99, 100, 101, 500} {
		var took []time.Duration
		for i := range n {
			took = append(took, time.Duration(i+1)*1500*time.Microsecond)
		}
		for _, p := range []int{0, 50, 95, 99, 100} {
			got := percentile(took, p)
			at := slices.Index(took, time.Duration(got*float64(time.Millisecond)))
			if at < 0 || 100*(at+1) < p*n || 100*at > p*n { // as many below it, and no more
				t.Errorf("percentile %d of %d values is %v", p, n, got)
			}
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("of nothing: %v", got)
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
