//go:build failpoint

package httpapi_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// asCSV reads a campaign's purchases as CSV. The error is also one of a body that breaks off.
func asCSV(s *fleet.System, campaign uuid.UUID, query string) (head headOf, body []byte, err error) {
	s.T.Helper()
	return plain(s.T, http.MethodGet, s.URLs[0]+"/v1/campaigns/"+campaign.String()+"/purchases"+query,
		map[string]string{"Authorization": "Bearer " + s.App, "Accept": "text/csv"})
}

// table reads CSV into rows by the names of their columns.
func table(t *testing.T, body []byte) (rows []map[string]string) {
	t.Helper()
	lines, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
	if err != nil || len(lines) == 0 {
		t.Fatalf("%v: %s", err, body)
	}
	for _, line := range lines[1:] {
		row := make(map[string]string)
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func TestACampaignsPurchasesAreATable(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy).With()
	path, id := openShape(s, nil, row(1, 2, ""), row(2, 3, "=Row"))
	first := buys(s, path, `=HYPERLINK("https://evil.example")`, numbered(1), fleet.Fields{"method": "external", "reference": "order, \"1\""})
	second := s.Execute(path+"/purchases", fleet.Fields{"user_id": "花子", "selection": numbered(3, 5), "payment": external, "metadata": map[string]string{"order": "A, \"7\""}}, "Prefer", fleet.UntilFinal)
	if a := s.Cancel(s.App, second.Result.PurchaseID, "cancel", "+1\tmistake"); a.Status != http.StatusBadRequest { // no control characters come in
		t.Fatal(a)
	}
	mustAnswer(t, "", s.Cancel(s.App, second.Result.PurchaseID, "cancel-2", "@SUM(A1)"), job.Succeeded)
	head, body, err := asCSV(s, id, "")
	if err != nil || head.StatusCode != http.StatusOK || head.Header.Get("Content-Type") != "text/csv; charset=utf-8; header=present" ||
		head.Header.Get("Vary") != "Accept" || !strings.Contains(head.Header.Get("Content-Disposition"), id.String()) {
		t.Fatal(head, err)
	}
	if bytes.Count(body, []byte("\r\n")) != bytes.Count(body, []byte("\n")) || !bytes.HasSuffix(body, []byte("\r\n")) {
		t.Errorf("lines do not end as RFC 4180 says: %q", body)
	}
	rows := table(t, body)
	if len(rows) != 2 {
		t.Fatalf("%s", body)
	}
	for name, want := range map[string]string{"id": second.Result.PurchaseID.String(), "state": "cancelled", "user_id": "花子", "amount": "400", "currency": "JPY",
		"quantity": "2", "payment_method": "external", "position_numbers": "3 5", "position_labels": "'=Row 1; '=Row 3", "metadata": `{"order":"A, \"7\""}`, "cancel_reason": "'@SUM(A1)", "job_id": second.ID.String(), "failure": ""} {
		if rows[0][name] != want {
			t.Errorf("%s is %q, want %q", name, rows[0][name], want)
		}
	}
	if rows[0]["cancelled_at"] == "" || !strings.HasSuffix(rows[0]["created_at"], "Z") || !strings.HasPrefix(rows[0]["positions"], "L2C") || strings.Count(rows[0]["positions"], " ") != 1 {
		t.Errorf("%v", rows[0])
	}
	if rows[1]["id"] != first.Result.PurchaseID.String() || rows[1]["user_id"] != `'=HYPERLINK("https://evil.example")` || rows[1]["payment_reference"] != `order, "1"` {
		t.Errorf("%v", rows[1])
	}
	if _, body, err := asCSV(s, id, "?state=completed"); err != nil || len(table(t, body)) != 1 {
		t.Errorf("of a state: %s, %v", body, err)
	}
	if head, body, err := asCSV(s, id, "?limit=1"); err != nil || head.StatusCode != http.StatusBadRequest {
		t.Errorf("a page of it: %v %s, %v", head, body, err)
	}
	wantAnswer(t, "who prefers JSON", s.Do(0, s.App, http.MethodGet, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Accept": "text/csv;q=0.5, application/json"}, nil), valued{"Content-Type", "application/json"})
	if head, body, err := plain(t, http.MethodHead, s.URLs[0]+"/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Authorization": "Bearer " + s.App, "Accept": "text/csv"}); err != nil || head.StatusCode != http.StatusOK || len(body) > 0 {
		t.Errorf("HEAD: %v %s, %v", head, body, err)
	}
	s.AwaitMetric(0, `triprize_exports_total{outcome="sent"}`, 2)
}

// A table of several pages: when Postgres fails before the last one, the answer breaks off.
func TestATableThatCannotBeFinishedIsCutOff(t *testing.T) { // not parallel: the failpoint is of all apis
	s := fleet.Start(t, fleet.Options{Workers: -1})
	id := s.Campaign(21)
	const purchases = 215 // more than a page
	fixture.Sell(t, s.DB, id, purchases)
	exec(s, `UPDATE purchases SET client = $2 WHERE campaign_id = $1`, id, s.Client("shop"))
	if _, body, err := asCSV(s, id, ""); err != nil || len(table(t, body)) != purchases {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	pages := 0
	remove := failpoint.Set("httpapi.export", "", func() {
		if pages++; pages == 2 {
			if _, err := s.DB.Exec(context.Background(), `ALTER TABLE purchase_items RENAME TO away`); err != nil {
				t.Error(err)
			}
		}
	})
	defer remove()
	if head, body, err := asCSV(s, id, ""); err == nil || head.StatusCode != http.StatusOK {
		t.Errorf("a whole answer: %v, %d bytes, %v", head, len(body), err)
	}
	s.AwaitMetric(0, `triprize_exports_total{outcome="failed"}`, 1)
	servers.Exec(t, s.DB, `ALTER TABLE away RENAME TO purchase_items`)
}

func TestTablesHaveFewPlaces(t *testing.T) { // not parallel: the failpoint is of all apis
	s := fleet.Shared(t, quiet).With()
	id := s.Campaign(3)
	path := s.URLs[0] + "/v1/campaigns/" + id.String() + "/purchases"
	at, goOn := make(chan struct{}, 9), make(chan struct{})
	remove := failpoint.Set("httpapi.export", "", func() { at <- struct{}{}; <-goOn })
	defer remove()
	keys := []string{s.App, s.NewKey("kiosk"), s.NewKey("third")}
	ask := func(key string) (headOf, []byte, error) {
		return plain(t, http.MethodGet, path, map[string]string{"Authorization": "Bearer " + key, "Accept": "text/csv"})
	}
	done := make(chan error, 4)
	for _, key := range []string{s.App, s.App, keys[1], keys[1]} {
		go func() { _, _, err := ask(key); done <- err }()
		<-at
	}
	if head, body, err := ask(keys[0]); err != nil || head.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a third one of a client: %v %s %v", head, body, err)
	}
	if head, body, err := ask(keys[2]); err != nil || head.StatusCode != http.StatusServiceUnavailable || !fleet.Contains(body, "overloaded") {
		t.Errorf("a fifth one: %v %s %v", head, body, err)
	}
	close(goOn)
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if head, _, err := ask(keys[2]); err != nil || head.StatusCode != http.StatusOK {
		t.Errorf("when there is a place: %v %v", head, err)
	}
}

// Slow readers of a few addresses close proofs and lists to nobody else.
func TestAnAddressReadsOneProofAtATimeAndLeavesOthersTheirs(t *testing.T) { // not parallel: the failpoint is of all apis
	s := fleet.Shared(t, busy).With("TRIPRIZE_LIMITS_ADDRESS_RATE=1000")
	path, _ := drawnCampaign(s)
	at, goOn := make(chan struct{}, 9), make(chan struct{})
	remove := failpoint.Set("httpapi.proof", "", func() { at <- struct{}{}; <-goOn })
	defer remove()
	ask := func(host byte, end string) (status int, err error) {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URLs[0]+path+end, nil)
		if err != nil {
			return 0, err
		}
		response, err := (&http.Client{Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}).Do(request)
		if err != nil {
			return 0, err
		}
		defer func() { _ = response.Body.Close() }()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	const addresses = 9 // two each were once all that callers without a key had
	done := make(chan error, addresses)
	for host := byte(2); host < 2+addresses; host++ {
		go func() {
			status, err := ask(host, []string{"/proof", "/list"}[host%2])
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("address %d: %d", host, status)
			}
			done <- err
		}()
		select {
		case <-at:
		case err := <-done:
			close(goOn)
			t.Fatal("refused to another address: ", err)
		}
		second := make(chan string, 1)
		go func() { status, err := ask(host, "/proof"); second <- fmt.Sprint(status, err) }()
		select {
		case <-at:
			t.Error("an address has two")
		case got := <-second:
			if got != "429 <nil>" {
				t.Errorf("a second one of an address: %s", got)
			}
		}
	}
	close(goOn)
	for range addresses {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestTheConsoleHasTheCSVOfTheAPI(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := openShape(s, nil, row(1, 9, ""))
	for i := range 5 {
		mustAnswer(t, "bought", buys(s, path, s.User("mina"), numbered(i+1), fleet.Fields{"method": "external", "reference": fmt.Sprint("=", i)}), job.Succeeded)
	}
	b := signIn(s)
	_, want, err := asCSV(s, id, "")
	servers.NoError(t, err)
	for method, want := range map[string][]byte{http.MethodGet: want, http.MethodHead: nil} {
		head, got, err := plain(t, method, s.URLs[0]+"/console/campaigns/"+id.String()+"/purchases.csv", map[string]string{"Cookie": b.cookie})
		if err != nil || head.StatusCode != http.StatusOK || !bytes.Equal(got, want) || !strings.HasPrefix(head.Header.Get("Content-Type"), "text/csv") || head.Header.Get("Content-Disposition") == "" {
			t.Errorf("%s: %v, %v, %d bytes, not %d", method, head, err, len(got), len(want))
		}
	}
	wantAnswer(t, "of a state", b.get("/campaigns/"+id.String()+"/purchases.csv?state=failed"), 200, "id,created_at", without(id.String()))
	wantAnswer(t, "without a session", browser{s: s}.get("/campaigns/"+id.String()+"/purchases.csv"), 303, without("created_at"))
	wantAnswer(t, "of none", b.get(page("campaigns", uuid.New())+"/purchases.csv"), 404, `<h1 dir="auto">Not shown</h1>`)
	wantAnswer(t, "with a parameter that is not known", b.get("/campaigns/"+id.String()+"/purchases.csv?x=1"), 400, `<h1 dir="auto">Not shown</h1>`, "x")
	wantAnswer(t, "the API without a key", s.Do(0, "", http.MethodGet, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Cookie": b.cookie}, nil), 401)
}
