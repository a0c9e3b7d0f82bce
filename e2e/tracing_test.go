package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/otlp"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// arrived are spans, as tests look for them.
type arrived struct {
	all                 []otlp.Span
	byRef, below, ofJob map[string][]otlp.Span // below: by the parent's ref; ofJob: by the id and the name
}

func arrivedAt(c *otlp.Collector) arrived {
	a := arrived{c.Spans(), make(map[string][]otlp.Span), make(map[string][]otlp.Span), make(map[string][]otlp.Span)}
	for _, s := range a.all {
		job := s.Attributes["triprize.job_id"] + s.Name
		a.byRef[s.Ref()] = append(a.byRef[s.Ref()], s)
		a.below[s.Trace+"/"+s.Parent] = append(a.below[s.Trace+"/"+s.Parent], s)
		a.ofJob[job] = append(a.ofJob[job], s)
	}
	return a
}

// job returns the spans of a job with a name.
func (a arrived) job(id uuid.UUID, name string) []otlp.Span { return a.ofJob[id.String()+name] }

// has reports whether there is a span like this.
func has(spans []otlp.Span, like func(otlp.Span) bool) bool { return slices.ContainsFunc(spans, like) }

// hasSQL reports whether there are statements below a span.
func (a arrived) hasSQL(s otlp.Span) bool {
	return has(a.below[s.Ref()], func(s otlp.Span) bool { return s.Attributes["db.system.name"] == "postgresql" })
}

// follow returns the traces of purchases: each has its request, and below it the spans of its job,
// each of which links a batch with its statements. ok is false while something is missing.
func (a arrived) follow(t *testing.T, purchases []fleet.Answer) (traces map[string]bool, ok bool) {
	t.Helper()
	traces = make(map[string]bool)
	for _, p := range purchases {
		request := a.job(p.ID, "POST /v1/campaigns/:campaign/purchases")
		if len(request) == 0 {
			return nil, false
		}
		traces[request[0].Trace] = true
		for _, name := range []string{"accept", "purchase"} {
			spans := a.job(p.ID, name)
			if len(spans) == 0 {
				return nil, false
			}
			for _, s := range spans { // a job that was put off has several
				if s.Trace != request[0].Trace || s.Parent != request[0].ID || len(s.Links) != 1 {
					t.Fatalf("%+v is not of the request %+v", s, request[0])
				}
				batch := a.byRef[s.Links[0]]
				if len(batch) == 0 || !a.hasSQL(batch[0]) {
					return nil, false
				}
			}
		}
	}
	return traces, true
}

func (a arrived) largestBatch() (most int) {
	for _, s := range a.all {
		if n, err := strconv.Atoi(s.Attributes["triprize.jobs"]); err == nil && s.Name == "purchase batch" {
			most = max(most, n)
		}
	}
	return most
}

// The row of a job knows its trace, so that a task which Redis has lost costs none of it. The provider is asked in the
// trace of the purchase, and so is the money that goes back. Batches wait for more jobs, so that one has more than the
// 128 links that OpenTelemetry keeps. A span that the collector does not take in time is lost.
func TestOnePurchaseIsOneTraceAlthoughHundredsShareATransaction(t *testing.T) {
	t.Parallel()
	c := otlp.Start(t)
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1, Sandbox: &stripesim.Settings{}, Env: append(slices.Clip(hasty),
		"TRIPRIZE_TRACING_OTLP_URL="+c.URL, "TRIPRIZE_TRACING_SAMPLE_RATIO=1", "OTEL_BSP_SCHEDULE_DELAY=200", "OTEL_BSP_MAX_QUEUE_SIZE=100000", "TRIPRIZE_TRACING_TIMEOUT=5m", "OTEL_BSP_EXPORT_TIMEOUT=300000",
		"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8", "TRIPRIZE_WORKER_SHARDS=1", "TRIPRIZE_ACCEPT_BATCH_LINGER=300ms", "TRIPRIZE_WORKER_BATCH_LINGER=1s")})
	aTaskIsLost(s, c)
	aPaymentIsRefunded(s, c)
	hundredsShareATransaction(s, c)
	for _, span := range c.Spans() {
		for name, value := range span.Attributes {
			if strings.Contains(value, "user-") || strings.Contains(value, "ref-") || name == "pgx.query.parameters" {
				t.Fatalf("%s of %s is %q", name, span.Name, value)
			}
		}
	}
}

// aTaskIsLost loses a task in Redis. Its trace is the caller's, although the caller does not record it. Then the scheduler and the worker begin.
func aTaskIsLost(s *fleet.System, c *otlp.Collector) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	p := s.Execute("/v1/campaigns/"+s.Campaign(3).String()+"/purchases",
		fleet.Fields{"user_id": "user-1", "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "external"}}, "traceparent", "00-"+trace+"-00f067aa0ba902b7-00")
	fleet.Want(s.T, http.StatusAccepted, p)
	servers.Eventually(s.T, "Redis has the task, and loses it", func() bool {
		keys := servers.Keys(s.T, s.Redis, "*"+s.Settings.Redis.Namespace+"*")
		isTask := func(key string) bool { return strings.Contains(key, "purchase") && strings.Contains(key, ":t:") }
		if !slices.ContainsFunc(keys, isTask) {
			return false
		}
		for _, key := range keys {
			servers.NoError(s.T, s.Redis.Del(s.T.Context(), key).Err())
		}
		return true
	})
	s.RunScheduler()
	s.RunWorker()
	fleet.WantSucceeded(s.T, s.AwaitJob(0, p.ID))
	servers.Eventually(s.T, "the purchase is in its trace", func() bool {
		spans := arrivedAt(c).job(p.ID, "purchase")
		return len(spans) > 0 && spans[0].Trace == trace
	})
}

func aPaymentIsRefunded(s *fleet.System, c *otlp.Collector) {
	p := s.Buy(fleet.Order{Campaign: s.Campaign(3), User: "user-1", Card: "pm_card_visa", Wait: true})
	fleet.WantSucceeded(s.T, p)
	if a := s.Cancel(s.App, p.Result.PurchaseID, uuid.NewString(), "no more"); a.Status/100 != 2 {
		s.T.Fatal(a)
	}
	servers.Eventually(s.T, "calls of payment and refund have arrived", func() bool {
		a := arrivedAt(c)
		for _, name := range []string{"payment", "refund"} {
			if !has(a.job(p.ID, name), func(s otlp.Span) bool {
				return has(a.below[s.Ref()], func(call otlp.Span) bool {
					return call.Name == "POST" && call.Attributes["server.address"] != "" && call.Attributes["http.response.status_code"] == "200"
				})
			}) {
				return false
			}
		}
		return has(a.all, func(s otlp.Span) bool {
			return strings.HasPrefix(s.Name, "sweep ") && a.hasSQL(s) &&
				has(a.below[s.Ref()], func(s otlp.Span) bool { return strings.HasPrefix(s.Name, "redis ") })
		})
	})
}

func hundredsShareATransaction(s *fleet.System, c *otlp.Collector) {
	t := s.T
	heard := struct {
		sync.Mutex
		traces map[string]string // by the id of the event
	}{traces: make(map[string]string)}
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		heard.Lock()
		defer heard.Unlock()
		heard.traces[r.Header.Get("Webhook-Id")] = r.Header.Get("Traceparent")
	}))
	t.Cleanup(app.Close)
	fleet.Want(t, http.StatusCreated, s.Execute("/v1/webhook-endpoints", fleet.Fields{"url": app.URL, "events": []string{"purchase.completed"}}))
	const base = 24 // 300 positions
	var campaign uuid.UUID
	var purchases []fleet.Answer
	for rounds := 0; arrivedAt(c).largestBatch() <= 128; rounds++ {
		if rounds == 5 {
			t.Fatalf("the largest batch had %d jobs", arrivedAt(c).largestBatch())
		}
		campaign = s.Campaign(base)
		servers.NoError(t, s.Workers[rounds].Stop(terminate, servers.Patience)) // however slowly they come, all wait for the next one
		purchases = s.Crowd(base*(base+1)/2, func(i int) fleet.Order {
			return fleet.Order{Campaign: campaign, User: "user-" + strconv.Itoa(i)}
		})
		s.RunWorker()
		s.AwaitDrawn(campaign)
		servers.Eventually(t, "their spans have arrived", func() bool { _, ok := arrivedAt(c).follow(t, purchases); return ok })
	}
	traces, _ := arrivedAt(c).follow(t, purchases)
	if len(traces) != len(purchases) {
		t.Errorf("%d purchases have %d traces", len(purchases), len(traces))
	}
	servers.Eventually(t, "the draw is in the trace of the purchase that sold the campaign out", func() bool {
		a := arrivedAt(c)
		return has(a.all, func(s otlp.Span) bool {
			return s.Name == "draw" && traces[s.Trace] && a.hasSQL(s) && s.Attributes["triprize.outcome"] == "succeeded"
		})
	})
	servers.Eventually(t, "the app was told with the trace of each purchase", func() bool {
		told := make(map[string]bool)
		for _, s := range arrivedAt(c).all {
			heard.Lock()
			if s.Name == "webhook purchase.completed" && heard.traces[s.Attributes["triprize.event_id"]] == "00-"+s.Trace+"-"+s.ID+"-01" && traces[s.Trace] {
				told[s.Trace] = true
			}
			heard.Unlock()
		}
		return len(told) == len(traces)
	})
}

// linesOf returns the lines with some texts in the logs of all processes, each with its process.
func linesOf(s *fleet.System, texts ...string) (lines []string) {
	for _, process := range []string{"api-1", "api-2", "worker-1", "scheduler-1"} {
		for line := range strings.Lines(string(s.Log(process))) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// At the default level the id of one request leads through the logs of all processes, from the
// purchase that sells the last position to the winners; and no log has a secret, or what was sent. What becomes of
// a card and of the money is there with the ids that the provider knows.
func TestOneIDFollowsAPurchaseAndItsDrawThroughAllLogs(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{APIs: 2}, "TRIPRIZE_SWEEPS_LOST_JOBS_BACKOFF=1h", "TRIPRIZE_DRAW_LEASE=10m") // each step comes once, and has a line
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	id := s.Campaign(2)
	fleet.WantSucceeded(t, s.Buy(fleet.Order{Campaign: id, User: "anna-of-the-body", Quantity: 2, Wait: true}))
	last := s.Do(1, s.App, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases",
		map[string]string{"Idempotency-Key": "a-key", "Prefer": fleet.UntilFinal, "X-Request-ID": "order-4711", "traceparent": "00-" + trace + "-00f067aa0ba902b7-01"},
		fleet.Fields{"user_id": "mina-of-the-body", "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "external", "reference": "in-the-body"}})
	fleet.WantSucceeded(t, last)
	s.AwaitDrawn(id)
	servers.Eventually(t, "the request and the draw have their last lines", func() bool {
		written := strings.Join(linesOf(s, "request_id=order-4711"), "")
		return strings.Contains(written, "kind=draw") && strings.Contains(written, "msg=request ")
	})
	followed := linesOf(s, "request_id=order-4711")
	all, sold := strings.Join(followed, ""), last.Result.Positions[0]
	steps := [][]string{
		{"process=api", "msg=request ", "operation=requestPurchase", "status=200", "job=" + last.ID.String()},
		{"process=worker", `msg="job finalized"`, "kind=purchase", "outcome=succeeded", "job=" + last.ID.String(), "purchase=" + last.Result.PurchaseID.String(),
			fmt.Sprintf(" positions=%d/%d ", sold.Layer, sold.Column), "attempts=1", "took_ms="},
		{"process=worker", `msg="draw triggered"`, "by=sell_out", "from=active", "to=drawing"},
		{"process=worker", `msg="execution lock taken"`, "holder=", "version=1", "took_ms="},
		{"process=worker", `msg="draw list frozen"`, "positions=3", "prizes=2"},
		{"process=worker", `msg="draw completed"`, "from=drawing", "to=completed", "winners=2", "took_ms="},
		{"process=worker", `msg="job finalized"`, "kind=draw", "outcome=succeeded"},
	}
	for _, step := range steps {
		if n := len(linesOf(s, append(step, "request_id=order-4711", "trace_id="+trace, id.String())...)); n != 1 {
			t.Errorf("%d lines have %v among\n%s", n, step, all)
		}
	}
	if len(followed) != len(steps) {
		t.Errorf("%d lines:\n%s", len(followed), all)
	}
	for _, secret := range []string{s.App, s.Operator, s.Settings.Draw.SecretKey, fleet.SandboxKey, fleet.WebhookSecret, "of-the-body", "in-the-body", "a-key"} {
		if found := linesOf(s, secret); secret == "" || len(found) > 0 {
			t.Errorf("the logs have %q: %s", secret, found)
		}
	}

	id = s.Campaign(4)
	declined := s.Buy(fleet.Order{Campaign: id, User: "mina", Card: "pm_card_chargeDeclinedInsufficientFunds", Wait: true})
	paid := s.Buy(fleet.Order{Campaign: id, User: "anna", Card: "pm_card_visa", Wait: true})
	fleet.WantSucceeded(t, paid)
	fleet.WantSucceeded(t, s.Cancel(s.App, paid.Result.PurchaseID, "cancel", "wrong size"))
	for _, want := range [][]string{
		{`msg="a card was declined"`, "job=" + declined.ID.String(), "intent=pi_", "decline=insufficient_funds"},
		{`msg="a payment has succeeded"`, "job=" + paid.ID.String(), "purchase=" + paid.Result.PurchaseID.String(), "intent=pi_"},
		{`msg="a refund has succeeded"`, "purchase=" + paid.Result.PurchaseID.String(), "provider_id=re_"},
	} {
		servers.Eventually(t, want[0], func() bool { return len(linesOf(s, want...)) > 0 })
	}
}
