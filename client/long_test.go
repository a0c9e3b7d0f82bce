package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize.example/client"
)

func TestAProofOrAListIsAStreamAndAPartOfItIsAnError(t *testing.T) {
	t.Parallel()
	answers := map[uuid.UUID]func(w http.ResponseWriter){}
	whole, cut, early := uuid.New(), uuid.New(), uuid.New()
	answers[whole] = func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{}") }
	answers[cut] = func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"sold":[`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	answers[early] = func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"code":"state-conflict","status":409,"title":"t","detail":"d","type":"/problems#state-conflict"}`)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for id, answer := range answers {
			if path := "/v1/campaigns/" + id.String() + "/draw"; (r.URL.Path == path+"/proof" || r.URL.Path == path+"/list") && r.Header.Get("Authorization") == "Bearer key" {
				answer(w)
			}
		}
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "key", client.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	read := func(open func(context.Context, client.CampaignID) (io.ReadCloser, error), id uuid.UUID) (string, error) {
		body, err := open(t.Context(), id)
		if err != nil {
			return "", err
		}
		defer func() { _ = body.Close() }()
		text, err := io.ReadAll(body)
		return string(text), err
	}
	for _, open := range []func(context.Context, client.CampaignID) (io.ReadCloser, error){c.Proof, c.DrawList} {
		if text, err := read(open, whole); err != nil || text != "{}" {
			t.Errorf("%q, %v", text, err)
		}
		if text, err := read(open, cut); err == nil {
			t.Errorf("a part is taken for the whole: %q", text)
		}
		if _, err := read(open, early); !isRefusal(err, client.CodeStateConflict) {
			t.Errorf("too early: %v", err)
		}
	}
}

func isRefusal(err error, code string) bool {
	refused, ok := asError(err)
	return ok && refused.Code == code
}

func TestATableOfPurchasesIsAskedForAsCSV(t *testing.T) {
	t.Parallel()
	campaign := uuid.New()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/v1/campaigns/"+campaign.String()+"/purchases?method=wallet&state=completed" || !strings.HasPrefix(r.Header.Get("Accept"), "text/csv") {
			http.Error(w, r.URL.RequestURI(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, "id,user_id\r\n")
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "key")
	if err != nil {
		t.Fatal(err)
	}
	body, err := c.PurchasesCSV(t.Context(), campaign, client.ListCampaignPurchasesParams{State: client.PurchaseStateCompleted, Method: client.PaymentMethodWallet, Limit: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	if text, err := io.ReadAll(body); err != nil || string(text) != "id,user_id\r\n" {
		t.Errorf("%q, %v", text, err)
	}
}
