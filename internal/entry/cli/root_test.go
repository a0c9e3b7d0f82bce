package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"triprize/internal/key"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// TestMain stops the servers of the tests.
func TestMain(m *testing.M) { fleet.Main(m) }

func run(args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	status = Run(args, &out, &errs)
	return out.String(), errs.String(), status
}

func TestBadArgumentsAreRefusedWithAReasonAndMakeNothing(t *testing.T) {
	db := database(t)
	for line, want := range map[string]string{
		"ready":                        "1 arg",
		"key make":                     `"make" is not a command of "triprize key"`,
		"key create --role app":        `"client" not set`,
		"key create --client shop":     `"role" not set`,
		"key revoke":                   "1 arg",
		"key list --config /nowhere":   "/nowhere",
		"migrate up --config /nowhere": "/nowhere",

		"key create --role king --client shop":      `the role must be operator, viewer or app, not "king"`,
		"key create --role app --client two,shops":  `the client must be 1 to 64 of a-z`,
		"key create --role operator --client=":      `the client must be 1 to 64 of a-z`,
		"key revoke 000000000000":                   `there is no key with the prefix "000000000000"`,
		"key revoke tp_000000000000_and-the-secret": `there is no key with the prefix`,

		"audit payments --to 2026-11-01":                                    "--from is required",
		"audit payments --from 2026-11-01":                                  "--to is required",
		"audit payments --frm 2026-11-01":                                   "unknown flag: --frm",
		"audit payments --from yesterday --to 2026-11-02":                   "neither a date",
		"audit payments --from 2026-11-02 --to 2026-11-02":                  "--to must be after --from",
		"audit payments --from 2026-01-01 --to 2026-11-02":                  "92 days at most",
		"audit payments --from 2026-11-01 --to 2026-11-02T09:00:00+09:00 x": "unknown command",
		"audit refunds": "unknown command",
	} {
		stdout, stderr, status := run(strings.Fields(line)...)
		exit := 1
		if strings.HasPrefix(line, "audit payments") {
			exit = 2 // the books were not compared
		}
		if status != exit || stdout != "" || !strings.HasPrefix(stderr, "triprize: ") || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d\n%s%s", line, status, stdout, stderr)
		}
	}
	if keys, err := key.List(t.Context(), db); err != nil || len(keys) != 0 {
		t.Errorf("keys were made all the same: %v, %v", keys, err)
	}
}

func TestReadyTellsByItsStatus(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	url := server.URL + "/readyz"
	if _, stderr, got := run("ready", url); got != 0 || stderr != "" {
		t.Errorf("status %d, %s", got, stderr)
	}
	status = http.StatusServiceUnavailable
	if _, stderr, got := run("ready", url); got != 1 || !strings.Contains(stderr, "not ready: "+url+" responded with 503") {
		t.Errorf("status %d, %s", got, stderr)
	}
	server.Close()
	for _, url := range []string{url, "nonsense"} {
		if _, stderr, got := run("ready", url); got != 1 || !strings.Contains(stderr, url) {
			t.Errorf("status %d, %s", got, stderr)
		}
	}
}

// A cron job that runs the audit must tell books that differ from books that nobody has read.
func TestBooksThatCannotBeComparedHaveAStatusOfTheirOwn(t *testing.T) {
	settings := servers.Settings(t)
	t.Setenv("TRIPRIZE_POSTGRES_URL", settings.Postgres.URL)
	t.Setenv("TRIPRIZE_REDIS_URL", settings.Redis.URL)
	span := []string{"audit", "payments"} // yesterday
	if _, stderr, status := run(span...); status != 2 || !strings.Contains(stderr, "payments.stripe.key is not set") {
		t.Errorf("without a key: status %d, %s", status, stderr)
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":{"type":"invalid_request_error","message":"Invalid API Key provided"}}`))
	}))
	defer refusing.Close()
	t.Setenv("TRIPRIZE_PAYMENTS_STRIPE_KEY", "sk_test_nobody")
	t.Setenv("TRIPRIZE_PAYMENTS_ALLOW_TEST", "true")
	t.Setenv("TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET", "whsec_nobody")
	for name, url := range map[string]string{"away": "http://127.0.0.1:1", "refusing the key": refusing.URL} {
		t.Setenv("TRIPRIZE_PAYMENTS_STRIPE_URL", url)
		if stdout, stderr, status := run(span...); status != 2 || stdout != "" {
			t.Errorf("a provider that is %s: status %d, %s%s", name, status, stdout, stderr)
		}
	}
	differing := reconciliation.Span{Discrepancies: []reconciliation.Discrepancy{{Detail: "a yen less"}}}
	if err := reportPayments(&bytes.Buffer{}, differing, false); err == nil || statusOf(err) != 1 {
		t.Errorf("books that differ: %v", err)
	}
}

func TestYesterdayIsTheLastDayOfUTCThatIsOver(t *testing.T) {
	t.Parallel()
	for now, want := range map[string]string{"2026-11-02T00:00:00Z": "2026-11-01", "2026-11-02T08:59:59+09:00": "2026-10-31", "2026-11-02T23:59:59Z": "2026-11-01"} {
		at, err := time.Parse(time.RFC3339, now)
		servers.NoError(t, err)
		if begin, end := yesterday(at); begin.Format(time.RFC3339) != want+"T00:00:00Z" || end.Sub(begin) != 24*time.Hour {
			t.Errorf("yesterday of %s: %s to %s", now, begin, end)
		}
	}
}
