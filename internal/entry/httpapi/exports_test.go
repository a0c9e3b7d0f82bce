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
	"time"

	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

// exportedBy reads an export with a key. The error is also one of a body that breaks off.
func exportedBy(s *fleet.System, key, method, kind, query, accept string) (head headOf, body []byte, err error) {
	s.T.Helper()
	return plain(s.T, method, s.URLs[0]+"/v1/exports/"+kind+query, map[string]string{"Authorization": "Bearer " + key, "Accept": accept})
}

// always is a period with everything.
const always = "?from=2026-01-01&to=2090-01-01"

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

func TestPurchasesAreATable(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy).With()
	path, _ := openShape(s, nil, row(1, 2, ""), row(2, 3, "=Row"))
	first := buys(s, path, `=HYPERLINK("https://evil.example")`, numbered(1), fleet.Fields{"method": "external", "reference": "order, \"1\""})
	second := s.Execute(path+"/purchases", fleet.Fields{"user_id": "花子", "selection": numbered(3, 5), "payment": external, "metadata": map[string]string{"order": "A, \"7\""}}, "Prefer", fleet.UntilFinal)
	mustAnswer(t, "", s.Cancel(s.App, second.Result.PurchaseID, "cancel-2", "@SUM(A1)"), job.Succeeded)
	head, body, err := exportedBy(s, s.App, http.MethodGet, "purchases", always+"&zone=Asia/Tokyo", "*/*")
	if err != nil || head.StatusCode != http.StatusOK || head.Header.Get("Content-Type") != "text/csv; charset=utf-8; header=present" ||
		head.Header.Get("Vary") != "Accept" || !strings.Contains(head.Header.Get("Content-Disposition"), `filename="triprize-purchases-2026-01-01-2090-01-01.csv"`) {
		t.Fatal(head, err, string(body))
	}
	rows := table(t, body)
	if len(rows) != 2 {
		t.Fatalf("%s", body)
	}
	for name, want := range map[string]string{"id": second.Result.PurchaseID.String(), "state": "cancelled", "user_id": "花子", "amount": "400", "currency": "JPY", "client": s.Client("shop"),
		"quantity": "2", "payment_method": "external", "position_numbers": "3 5", "position_labels": "'=Row 1; '=Row 3", "metadata": `{"order":"A, \"7\""}`, "cancel_reason": "'@SUM(A1)", "failure": ""} {
		if rows[1][name] != want {
			t.Errorf("%s is %q, want %q", name, rows[1][name], want)
		}
	}
	if rows[1]["cancelled_at"] == "" || !strings.HasSuffix(rows[1]["created_at"], "+09:00") || !strings.HasPrefix(rows[1]["positions"], "L2C") || strings.Count(rows[1]["positions"], " ") != 1 {
		t.Errorf("%v", rows[1])
	}
	if rows[0]["id"] != first.Result.PurchaseID.String() || rows[0]["user_id"] != `'=HYPERLINK("https://evil.example")` || rows[0]["payment_reference"] != `order, "1"` {
		t.Errorf("%v", rows[0])
	}
	head, lines, err := exportedBy(s, s.App, http.MethodGet, "purchases", always, "application/x-ndjson")
	if err != nil || head.Header.Get("Content-Type") != "application/x-ndjson" || bytes.Count(lines, []byte("\n")) != 2 || !fleet.Contains(lines, `"user_id":"=HYPERLINK(`) {
		t.Errorf("%v, %v: %s", head, err, lines)
	}
	if head, body, err := exportedBy(s, s.App, http.MethodHead, "purchases", always, ""); err != nil || head.StatusCode != http.StatusOK || len(body) > 0 {
		t.Errorf("HEAD: %v %s, %v", head, body, err)
	}
	for query, names := range map[string]string{"purchases": "?from", "sales" + always: "kind", "ledger" + always + "&zone=Mars": "?zone", "purchases" + always + "&separator=tab": "?separator",
		"purchases?as_of=2026-01-01": "?as_of", "wallets?as_of=x": "?as_of", "purchases" + always + "&user=a": "?user"} {
		a := s.Do(0, s.Operator, http.MethodGet, "/v1/exports/"+query, nil, nil)
		refused(t, query, a, 400, "invalid-request")
		wantAnswer(t, query, a, `"pointer":"`+names+`"`)
	}
	s.AwaitMetric(0, `triprize_exports_total{outcome="sent"}`, 2)
}

// A table of several pages: when Postgres fails before the last one, the answer breaks off.
func TestATableThatCannotBeFinishedIsCutOff(t *testing.T) { // not parallel: the failpoint is of all apis
	s := fleet.Start(t, fleet.Options{Workers: -1})
	id := s.Campaign(21)
	const purchases = 215 // more than fits into a buffer
	fixture.Sell(t, s.DB, id, purchases)
	exec(s, `UPDATE purchases SET client = $2 WHERE campaign_id = $1`, id, s.Client("shop"))
	read := func(by string) (headOf, []byte, error) {
		return exportedBy(s, by, http.MethodGet, "purchases", always, "text/csv")
	}
	if _, body, err := read(s.App); err != nil || len(table(t, body)) != purchases {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	pages := 0
	remove := failpoint.Set("export.page", "", func() {
		if pages++; pages == 2 {
			if _, err := s.DB.Exec(context.Background(), `ALTER TABLE purchase_items RENAME TO away`); err != nil {
				t.Error(err)
			}
		}
	})
	defer func() { remove() }()
	if head, body, err := read(s.App); err == nil || head.StatusCode != http.StatusOK {
		t.Errorf("a whole answer: %v, %d bytes, %v", head, len(body), err)
	}
	s.AwaitMetric(0, `triprize_exports_total{outcome="failed"}`, 1)
	servers.Exec(t, s.DB, `ALTER TABLE away RENAME TO purchase_items`)

	remove()
	remove = failpoint.Set("export.page", "", func() { panic("the first page") })
	for range 3 { // a client has two places, and each is left
		if head, _, err := read(s.App); err != nil || head.StatusCode != http.StatusInternalServerError {
			t.Fatalf("%v, %v", head, err)
		}
	}
	remove()
	pages = 0
	stolen, goOn := s.NewKey("shop"), make(chan struct{})
	remove = failpoint.Set("export.page", "", func() {
		if pages++; pages == 2 {
			if _, _, err := key.Revoke(context.Background(), s.DB, prefixOf(stolen), "", webhook.KeyRevoked); err != nil {
				t.Error(err)
			}
			select {
			case <-goOn:
			case <-time.After(servers.Patience):
			}
		}
	})
	head, body, err := read(stolen)
	if close(goOn); err == nil || head.StatusCode != http.StatusOK {
		t.Fatalf("by a key that is revoked: %v, %d bytes, %v", head, len(body), err)
	}
	s.AwaitMetric(0, `triprize_exports_total{outcome="cut"}`, 1)
}

func TestTablesHaveFewPlaces(t *testing.T) { // not parallel: the failpoint is of all apis
	s := fleet.Shared(t, quiet).With()
	at, goOn := make(chan struct{}, 9), make(chan struct{})
	remove := failpoint.Set("export.page", "", func() { at <- struct{}{}; <-goOn })
	defer remove()
	keys := []string{s.App, s.NewKey("kiosk"), s.NewKey("third")}
	ask := func(key string) (headOf, []byte, error) {
		return exportedBy(s, key, http.MethodGet, "wallets", "?as_of=2090-01-01", "text/csv")
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
