package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// Schedulers die at each step of closing a month: the next one goes on, and the month has the hash of its journal once.
func TestAMonthIsClosedOnceWhateverSchedulersDie(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_LOCKS_ENABLED=false"}}) // no scheduler waits for the lock of a dead one
	servers.Exec(t, s.DB, `
		INSERT INTO book_facts (day, kind, document_id, at, debit, credit, amount, currency, method)
		SELECT d::date, 'payment', 'document-' || n, d, 'receivable', 'unearned', n, 'EUR', 'card'
		FROM generate_series('2026-01-20 12:00+00'::timestamptz, '2026-02-28', interval '1 hour') WITH ORDINALITY AS s (d, n)`)
	fleet.Want(t, http.StatusOK, s.Do(0, s.Operator, http.MethodPost, "/v1/books/months/2026-02/close", map[string]string{"Idempotency-Key": "february"}, fleet.Fields{"zone": "Europe/Berlin"}))
	for _, point := range []string{"books.page@2026-01-25 payment", "books.day@2026-01-31", "books.page@2026-02-03 refund", "books.day@2026-02-10", "books.day@2026-02-28", "books.finish@2026-02"} {
		died(t, "the scheduler at "+point, s.RunScheduler("TRIPRIZE_TEST_FAILPOINTS="+point+"=kill"))
		if n := servers.Value[int](t, s.DB, `SELECT count(*)::int FROM book_periods WHERE closed_at IS NULL`); n != 1 {
			t.Fatalf("%s: %d months are being closed", point, n)
		}
	}
	s.RunScheduler()
	var month struct{ State, Hash string }
	servers.Eventually(t, "the month is closed", func() bool {
		a := s.Do(0, s.Operator, http.MethodGet, "/v1/books/months/2026-02", nil, nil)
		fleet.Want(t, http.StatusOK, a)
		servers.NoError(t, json.Unmarshal(a.Body, &month))
		return month.State == "closed"
	})
	export := s.Do(0, s.Operator, http.MethodGet, "/v1/exports/journal?from=2026-02-01&to=2026-03-01&zone=Europe/Berlin", nil, nil)
	if sum := sha256.Sum256(export.Body); month.Hash != hex.EncodeToString(sum[:]) {
		t.Errorf("the hash is %s, and that of its journal %x", month.Hash, sum)
	}
	if n := servers.Value[int](t, s.DB, `SELECT count(*)::int FROM audit_trail WHERE operation = 'sealMonth' AND after ->> 'hash' = $1`, month.Hash); n != 1 {
		t.Errorf("it is in the trail %d times", n)
	}
	out, errs, status := run(t, []string{"TRIPRIZE_POSTGRES_URL=" + s.Settings.Postgres.URL}, "books", "verify", "2026-02")
	if status != 0 || !strings.Contains(out, month.Hash) {
		t.Errorf("triprize books verify ends with %d: %s%s", status, out, errs)
	}
}
