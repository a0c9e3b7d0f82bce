package tracing

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/config"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/otlp"
)

const (
	trace1 = "4bf92f3577b34da6a3ce929d0e0e4736"
	sent   = "00-" + trace1 + "-00f067aa0ba902b7-01"
)

// open opens tracing for one test, which must not run beside others. The returned function ends it.
func open(t *testing.T, to string, ratio float64) (log *bytes.Buffer, end func()) {
	t.Helper()
	log = new(bytes.Buffer)
	end, err := Open(config.Tracing{OTLPURL: to, SampleRatio: ratio, Timeout: time.Hour}, "test", "1", telemetry.NewLogger(config.Log{Level: "info", Format: "text"}, "test", log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return log, end
}

func named(spans []otlp.Span, name string) (found []otlp.Span) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// OpenTelemetry keeps 128 links of a span, so the jobs of a batch link it, and not the other way round.
// The api has decided about each trace: a worker with another ratio follows it.
func TestEveryJobOfABatchIsInItsOwnTraceAndLinksTheBatch(t *testing.T) {
	c := otlp.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20a2V5")
	_, end := open(t, c.URL, 0)
	const jobs = 200
	traces := make(map[uuid.UUID]string)
	for i := range jobs {
		traces[uuid.New()] = fmt.Sprintf("00-%032x-%016x-01", i+1, i+1)
	}
	ctx, spans := Batch(t.Context(), "purchase", jobs, maps.All(traces))
	_, statement := Call(ctx, "below")
	statement.End(nil)
	spans.End(nil)
	end()
	all := c.Spans()
	batches, below, ofJobs := named(all, "purchase batch"), named(all, "below"), named(all, "purchase")
	if len(batches) != 1 || len(below) != 1 || below[0].Parent != batches[0].ID || len(ofJobs) != jobs || batches[0].Process != "triprize-test" {
		t.Fatalf("%d batches, %d below, %d jobs", len(batches), len(below), len(ofJobs))
	}
	own := make(map[string]bool)
	for _, s := range ofJobs {
		id, err := uuid.Parse(s.Attributes[JobID])
		if err != nil || traces[id] != "00-"+s.Trace+"-"+s.Parent+"-01" || !slices.Equal(s.Links, []string{batches[0].Ref()}) {
			t.Fatalf("%+v is not in the trace %s, or does not link %s", s, traces[id], batches[0].Ref())
		}
		own[s.Trace] = true
	}
	if len(own) != jobs {
		t.Errorf("%d traces", len(own))
	}
	if c.Key() != "Basic a2V5" {
		t.Errorf("the collector got the key %q", c.Key())
	}
}

func TestTheSampledFlagOfACallerIsNotTrusted(t *testing.T) {
	c := otlp.Start(t)
	_, end := open(t, c.URL, 0)
	ctx, request := Serve(t.Context(), sent)
	handed := request.Traceparent()
	if !strings.HasPrefix(handed, "00-"+trace1+"-") || !strings.HasSuffix(handed, "-00") || Recorded(handed) {
		t.Errorf("it is handed on as %s", handed)
	}
	if handed == sent[:len(sent)-1]+"0" {
		t.Error("it is handed on as the span of its sender")
	}
	if _, none := Serve(t.Context(), ""); none.Traceparent() != "" {
		t.Errorf("a request without a trace is in %s", none.Traceparent())
	}
	_, below := Call(ctx, "below")
	below.End(nil)
	ctx, job := Continue(t.Context(), handed, "job")
	job.End(nil)
	if next := of(ctx).Traceparent(); next != handed {
		t.Errorf("a trace that is not recorded is handed on as %q", next)
	}
	_, spans := Batch(t.Context(), "batch", 1, func(func(uuid.UUID, string) bool) {})
	spans.End(nil)
	request.End(nil)
	end()
	if all := c.Spans(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestOneOfTwoRequestsIsRecorded(t *testing.T) {
	_, end := open(t, otlp.Start(t).URL, .5)
	defer end()
	const requests = 4000
	for _, from := range []string{"", sent} {
		recorded := 0
		for range requests {
			_, request := Serve(t.Context(), from)
			if request.Recorded() {
				recorded++
			}
			request.End(nil)
		}
		if recorded < requests*2/5 || recorded > requests*3/5 { // a fair coin is out of this once in 10^36
			t.Errorf("%d of %d are recorded, from %q", recorded, requests, from)
		}
	}
}

func TestACallHandsTheTraceOnUnlessTracingIsOff(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("traceparent")) }))
	defer server.Close()
	ask := func(ctx context.Context) {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/path?secret=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := Transport(&http.Transport{}).RoundTrip(request)
		if err != nil || response.Body.Close() != nil || request.Header.Get("traceparent") != "" {
			t.Fatal(err)
		}
	}
	ask(t.Context())
	if SQL() != nil || Recorded(sent) {
		t.Error("a tracer is installed although tracing is off")
	}
	c := otlp.Start(t)
	_, end := open(t, c.URL, 1)
	ctx, request := Serve(t.Context(), "")
	ask(ctx)
	request.End(nil)
	ctx, _ = Continue(t.Context(), strings.TrimSuffix(sent, "01")+"00", "job")
	ask(ctx)
	end()
	calls := named(c.Spans(), "GET")
	if len(calls) != 1 || calls[0].Attributes["url.path"] != "/path" {
		t.Fatalf("%+v", calls)
	}
	want := []string{"", "00-" + calls[0].Trace + "-" + calls[0].ID + "-01", strings.TrimSuffix(sent, "01") + "00"}
	if !slices.Equal(got, want) {
		t.Errorf("handed on were %q, not %q", got, want)
	}
}

func TestACollectorThatIsAwayCostsOneLineOfTheLog(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	defer refusing.Close()
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
	log, end := open(t, refusing.URL, 1)
	for range 50 { // five requests to the collector
		_, span := Root(t.Context(), "sweep")
		span.End(nil)
	}
	end()
	if n := strings.Count(log.String(), "spans do not arrive"); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%d lines: %s", n, log)
	}
}

func TestATraceIsKeptAndABadHeaderIsIgnored(t *testing.T) {
	const parent = "00f067aa0ba902b7"
	for header, want := range map[string]string{
		sent:                             sent,
		sent[:len(sent)-1] + "0":         sent[:len(sent)-1] + "0",
		"cc" + sent[2:] + "-of-a-future": sent,
		"":                               "",
		sent + "-more":                   "",
		"ff" + sent[2:]:                  "",
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01": "",
		"00-" + trace1 + "-" + strings.Repeat("0", 16) + "-01": "",
		"00-" + strings.ToUpper(trace1) + "-" + parent + "-01": "",
		sent[1:]:    "",
		sent + "\n": "",
	} {
		got := Traceparent(header)
		if got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
		if id := TraceID(got); want != "" && id != trace1 || want == "" && id != "" {
			t.Errorf("%q is in trace %q", header, id)
		}
	}
}
