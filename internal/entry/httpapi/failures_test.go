package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/testkit/fleet"
)

// failedAt makes n jobs that have failed, accepted a second apart from a time on, and returns their ids, the newest first.
func failedAt(s *fleet.System, at time.Time, kind, code string, n int) (ids []uuid.UUID) {
	s.T.Helper()
	for i := range n {
		id, random := uuidv7.FirstAt(at.Add(time.Duration(i)*time.Second)), uuid.New()
		copy(id[8:], random[8:])
		exec(s, `INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, state, problem, finished_at, expires_at)
			VALUES ($1, $2, $5, sha256(''), $3, 'failed', json_build_object('code', $4::text, 'detail', 'x'), clock_timestamp(), clock_timestamp() + interval '1 day')`,
			id, s.Client("shop"), kind, code, id.String())
		ids = append(ids, id)
	}
	slices.Reverse(ids)
	return ids
}

func TestFailuresByAFaultOfOursAreListedByCause(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1}) // the page shows those of everybody
	day := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	failedAt(s, day.Add(-time.Second), "purchase", "internal-error", 1)
	given := failedAt(s, day, "purchase", "internal-error", 12)
	for code, n := range map[string]int{"payment-refused": 3, "payment-not-received": 2, "sold-out": 2, "reservation-expired": 2, "payment-declined": 2, "state-conflict": 2} {
		failedAt(s, day.Add(time.Hour), "purchase", code, n)
	}
	failedAt(s, day.Add(time.Minute), "cancellation", "internal-error", 1)
	failedAt(s, day.Add(24*time.Hour), "purchase", "internal-error", 1)
	ask := func(query string) fleet.Answer {
		return s.Do(0, s.Operator, http.MethodGet, "/v1/failures?"+query, nil, nil)
	}
	found, got := fleet.As[contract.FailureList](t, ask("since=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z")), ""
	for _, c := range found.Causes {
		got += fmt.Sprint(c.Code, " ", c.Kind, " ", c.Count, "; ")
	}
	wantEqual(t, "the causes", got, "internal-error purchase 12; payment-refused purchase 3; payment-not-received purchase 2; internal-error cancellation 1; ")
	if !found.Complete || len(found.Causes) == 0 || !slices.Equal(found.Causes[0].Jobs, given[:10]) {
		t.Errorf("got %+v, want the jobs %v", found, given[:10])
	}
	now := fleet.As[contract.FailureList](t, ask(""))
	wantEqual(t, "the span without one", now.Until.Sub(now.Since), time.Hour)
	for query, want := range map[string]int{"since=2020-01-01T00:00:00Z&until=2020-01-01T00:00:00Z": 400, "since=2020-01-01T00:00:00Z&until=2020-01-08T00:01:01Z": 400,
		"since=2020-01-01T00:00:00Z": 400, "since=2999-01-01T00:00:00Z": 400, "since=2020-01-01T00:00:00Z&until=2020-01-08T00:01:00Z": 200, "until=1969-01-01T00:00:00Z": 200} {
		if a := ask(query); wantAnswer(t, query, a, want) && want == 400 {
			wantEqual(t, query, refused(t, query, a, 400, "invalid-request").Errors[0].Pointer, "?since")
		}
	}

	b := signIn(s)
	wantAnswer(t, "the page without failures", b.get("/failed?span=hour"), 200, "No job has failed by our fault", `href="/console/waiting"`, `href="/asynqmon"`)
	awaitStatus(s, states{"failed_by_us": "ok", "given_up": "ok"})
	failedAt(s, time.Now(), "purchase", "payment-refused", 1)
	failedAt(s, time.Now(), "cancellation", "internal-error", 1)
	awaitStatus(s, states{"failed_by_us": "warning", "given_up": "critical"})
	recent := failedAt(s, time.Now().Add(-2*time.Hour), "purchase", "payment-refused", 11)
	wantAnswer(t, "the last hour", b.get("/failed"), 200, without(recent[0].String()))
	for _, span := range []string{"day", "week"} {
		wantAnswer(t, span, b.get("/failed?span="+span), 200, `<a href="/console/jobs/`+recent[0].String()+`">`, without(recent[10].String()), "rejected the payment: 12 × purchase", `href="/problems#payment-refused"`)
	}
	wantAnswer(t, "another span", b.get("/failed?span=year"), 404, `<h1 dir="auto">Not shown</h1>`)
}
