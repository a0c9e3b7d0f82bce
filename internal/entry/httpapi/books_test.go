package httpapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/key"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

const monthsPath = "/v1/books/months"

// sealMonth runs the sweep that reads the journal of the month that is being closed.
func sealMonth(s *fleet.System) {
	s.T.Helper()
	mustAnswer(s.T, "the sweep", s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/closing-months", nil, nil), http.StatusOK)
}

func monthNow(s *fleet.System, path string) contract.BookMonth {
	s.T.Helper()
	a := s.Do(0, s.Operator, http.MethodGet, path, nil, nil)
	mustAnswer(s.T, path, a, http.StatusOK)
	return decoded[contract.BookMonth](s, a)
}

// fact puts money into a past month.
func fact(s *fleet.System, at string) {
	servers.Exec(s.T, s.DB, `INSERT INTO book_facts (day, kind, document_id, at, debit, credit, amount, currency, method)
		VALUES (($1::timestamptz AT TIME ZONE 'UTC')::date, 'payment', 'old', $1, 'receivable', 'unearned', 1250, 'EUR', 'card')`, at)
}

func TestAMonthIsClosedOnceOverTheAPI(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 2, Workers: -1, Schedulers: -1, Env: everyday})
	fact(s, "2026-02-10 12:00+00")
	closeIt := func(api int, key string, body any) fleet.Answer {
		return s.Do(api, s.Operator, http.MethodPost, monthsPath+"/2026-02/close", map[string]string{"Idempotency-Key": key}, body)
	}
	open := monthNow(s, monthsPath+"/2026-02?zone=Asia/Tokyo")
	wantEqual(t, "before", string(open.State)+" "+open.Zone, "open Asia/Tokyo")
	wantEqual(t, "what is sold", open.Statement.Methods[0], contract.MonthMethod{Method: "card", Currency: "EUR", Sold: 1250, Kept: 1250})
	refused(t, "without a zone", closeIt(0, "a", fleet.Fields{}), 400, "invalid-request")
	refused(t, "a zone that is none", closeIt(0, "a", fleet.Fields{"zone": "Mars/Base"}), 400, "invalid-request")
	refused(t, "before anything was sold", s.Do(0, s.Operator, http.MethodPost, monthsPath+"/0206-02/close", map[string]string{"Idempotency-Key": "d"}, fleet.Fields{"zone": "UTC"}), 409, "state-conflict")
	refused(t, "a month that is not over", s.Do(0, s.Operator, http.MethodPost, monthsPath+"/2090-01/close", map[string]string{"Idempotency-Key": "b"}, fleet.Fields{"zone": "UTC"}), 409, "state-conflict")
	refused(t, "no month", s.Do(0, s.Operator, http.MethodPost, monthsPath+"/2026-13/close", map[string]string{"Idempotency-Key": "b"}, fleet.Fields{"zone": "UTC"}), 404, "not-found")

	body := fleet.Fields{"zone": "Asia/Tokyo", "reason": "with the accountant"}
	wantEqual(t, "fifty at once", statuses(fleet.AtOnce(50, func(i int) fleet.Answer { return closeIt(i%2, []string{"one", "two"}[i/25], body) })), "map[200:25 409:25]")
	wantEqual(t, "meanwhile", monthNow(s, monthsPath+"/2026-02").State, contract.BookMonthStateClosing)
	sealMonth(s)
	closed := monthNow(s, monthsPath+"/2026-02")
	wantEqual(t, "then", closed.State, contract.BookMonthStateClosed)
	wantEqual(t, "by", *closed.ClosedBy, "operator:"+s.Client("ops"))
	export := s.Do(0, s.Operator, http.MethodGet, "/v1/exports/journal?from=2026-02-01&to=2026-03-01&zone=Asia/Tokyo", nil, nil)
	sum := sha256.Sum256(export.Body)
	wantEqual(t, "its hash", *closed.Hash, hex.EncodeToString(sum[:]))
	wantAnswer(t, "its journal", export, 200, "2026-02-10,1,1,receivable,,1250,0,12.50,0.00,EUR,payment,old,,card,\r\n2026-02-10,1,2,unearned,,0,1250,0.00,12.50,EUR,payment,old,,card,\r\n")
	refused(t, "again", closeIt(0, "c", body), 409, "state-conflict")
	wantAnswer(t, "the list", s.Do(0, s.NewKeyOf(key.Viewer, "bi"), http.MethodGet, monthsPath, nil, nil), 200, *closed.Hash)
	if n := servers.Value[int](t, s.DB, `SELECT count(*)::int FROM audit_trail WHERE target = '2026-02'`); n != 2 {
		t.Errorf("%d rows in the trail", n)
	}
}

// The form shows what is closed: with other sums than it has shown nothing is.
func TestTheConsoleClosesTheMonthThatItHasShown(t *testing.T) {
	t.Parallel()
	s := withApprovals(t, fleet.Options{Workers: -1, Schedulers: -1, Env: everyday}, "books.close")
	fact(s, "2026-02-10 12:00+00")
	ops, finance, support := person(s, "ops", key.Operator), person(s, "finance", key.Approver), person(s, "support", key.Viewer)
	wantAnswer(t, "the books", support.get("/books"), 200, "No month is closed.", "Download CSV")
	wantAnswer(t, "the form of a month", support.get("/books?month=2026-02&zone=Asia%2FTokyo"), 302)
	wantAnswer(t, "without a zone", support.get("/books/2026-02"), 400, "zone")
	wantAnswer(t, "for a viewer", support.get("/books/2026-02?zone=Asia/Tokyo"), 200, "12.50 EUR", "Nothing.", without("/close"))
	wantAnswer(t, "for an operator", ops.get("/books/2026-02?zone=Asia/Tokyo"), 200, "/console/books/2026-02/close?zone=Asia")
	wantAnswer(t, "no month", ops.get("/books/2026-99?zone=UTC"), 404)
	wantAnswer(t, "the export", support.get("/exports?kind=journal&from=2026-02-01&to=2026-03-01&zone=UTC"), 200, "receivable,,1250")
	wantAnswer(t, "an export of nothing", support.get("/exports?kind=x&from=2026-02-01&to=2026-03-01"), 400)

	const at = "/books/2026-02/close"
	page := ops.get(at + "?zone=Asia/Tokyo")
	wantAnswer(t, "the form", page, 200, "12.50 EUR = 12.50 EUR kept", "Asia/Tokyo")
	fact(s, "2026-02-11 12:00+00")
	wantAnswer(t, "with other sums by now", submit(ops, at, formOf(page, "/reason", "it is time", "typed", "2026-02")), 409, "has changed")
	page = ops.get(at + "?zone=Asia/Tokyo")
	wantAnswer(t, "without its name", submit(ops, at, formOf(page, "/reason", "it is time")), 400)
	asked := submit(ops, at, formOf(page, "/reason", "it is time", "typed", "2026-02"))
	wantAnswer(t, "asked", asked, 303)
	if n := servers.Value[int](t, s.DB, `SELECT count(*)::int FROM book_periods`); n != 0 {
		t.Errorf("%d months are closed before another person has approved it", n)
	}
	request := strings.TrimPrefix(asked.Header.Get("Location"), "/console")
	page = finance.get(request)
	wantAnswer(t, "the request", page, 200, "Close the month of the books, for ever", "2026-02", "Asia/Tokyo")
	wantAnswer(t, "approved", submit(finance, request+"/approve", formOf(page, "/reason", "yes")), 303)
	sealMonth(s)
	wantAnswer(t, "closed", support.get("/books/2026-02"), 200, "25.00 EUR", "SHA-256", without("these sums may change"))
	wantAnswer(t, "listed", support.get("/books"), 200, "/console/books/2026-02", "Asia/Tokyo")
}
