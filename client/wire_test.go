//go:build go1.25

package client_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/oapi-codegen/nullable"

	"triprize.example/client"
)

// errOf is the error of a call whose answer does not matter.
func errOf[T any](_ T, err error) error { return err }

// read reads an answer to its end.
func read(body io.ReadCloser, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(body)
	return string(text), errors.Join(err, body.Close())
}

func TestACallIsARequestThatSaysWhoAsksForWhat(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			say(w, http.StatusOK, job(jobID, client.JobStateSucceeded))
			return true
		}
		c, ctx := s.client(client.WithUserAgent("shop/1")), t.Context()
		purchases := func(user string) error { return errOf(c.ListPurchases(ctx, user, client.ListPurchasesParams{})) }
		byCard := client.PaymentDraft{Method: client.PaymentDraftMethodCard, PaymentMethod: "pm_card_visa", ReturnURL: "https://shop.example/back"}
		november := client.GetExportParams{From: "2026-11-01", To: "2026-12-01", Zone: "Asia/Tokyo"}
		for i, c := range []struct {
			err        error
			want, body string
		}{
			{errOf(c.ListCampaigns(ctx, client.ListCampaignsParams{State: client.CampaignStateActive, Limit: 7})), "GET /v1/campaigns?limit=7&state=active", ""},
			{errOf(c.PatchCampaign(ctx, campaign, client.CampaignPatch{Name: "New", PurchaseLimit: nullable.NewNullNullable[int]()})),
				"PATCH /v1/campaigns/CAMPAIGN", `{"name":"New","purchase_limit":null}`},
			{errOf(c.Buy(ctx, campaign, client.PurchaseRequest{UserID: "ada", Selection: client.Selection{Quantity: 1}, Payment: byCard})), "POST /v1/campaigns/CAMPAIGN/purchases Prefer: wait=30",
				`{"payment":{"method":"card","payment_method":"pm_card_visa","return_url":"https://shop.example/back"},"selection":{"quantity":1},"user_id":"ada"}`},
			{errOf(c.BuyHold(ctx, client.Hold{ID: jobID, CampaignID: campaign, UserID: "ada"}, one.Payment)), "POST /v1/campaigns/CAMPAIGN/purchases Prefer: wait=30",
				`{"payment":{"method":"external"},"selection":{"hold_id":"JOB"},"user_id":"ada"}`},
			{errOf(c.Pay(ctx, jobID, client.PaymentTry{PaymentMethod: "pm_card_mastercard"})), "POST /v1/purchases/JOB/payment Prefer: wait=30", `{"payment_method":"pm_card_mastercard"}`},
			{errOf(c.Cancel(ctx, jobID, client.CancellationRequest{Reason: "why not"})), "POST /v1/purchases/JOB/cancel Prefer: wait=30", `{"reason":"why not"}`},
			{errOf(c.Wait(ctx, jobID)), "GET /v1/jobs/JOB Prefer: wait=30; until=final", ""},
			{errOf(c.DebitWallet(ctx, jobID, client.Movement{Amount: 5, Description: "half of it"}, client.WithVersion(7))), `POST /v1/wallets/JOB/debit If-Match: "7"`, `{"amount":5,"description":"half of it"}`},
			{errOf(c.ResolveRefund(ctx, jobID, client.RefundResolutionRequest{Amount: 500, Reason: "paid back in cash"})), "POST /v1/refunds/JOB/resolve", `{"amount":500,"reason":"paid back in cash"}`},
			{errOf(c.RetryRefund(ctx, jobID)), "POST /v1/refunds/JOB/retry", ""},
			{c.ReleaseHold(ctx, jobID), "DELETE /v1/holds/JOB", ""},
			{errOf(read(c.Export(ctx, "purchases", november))), "GET /v1/exports/purchases?from=2026-11-01&to=2026-12-01&zone=Asia%2FTokyo Accept: text/csv, application/problem+json", ""},
			{errOf(read(c.ExportLines(ctx, "wallets", client.GetExportParams{AsOf: "2026-12-01"}))), "GET /v1/exports/wallets?as_of=2026-12-01 Accept: application/x-ndjson, application/problem+json", ""},
			// A user stays in its segment of the path.
			{purchases("user-1"), "GET /v1/users/user-1/purchases", ""},
			{purchases("a/b"), "GET /v1/users/a%2Fb/purchases", ""},
			{purchases(".."), "GET /v1/users/%2E%2E/purchases", ""},
			{purchases("?x#y %"), "GET /v1/users/%3Fx%23y%20%25/purchases", ""},
			{purchases("ü"), "GET /v1/users/%C3%BC/purchases", ""},
		} {
			r := s.seen()[i]
			if c.err != nil || r.text() != c.want || named.Replace(r.body) != c.body {
				t.Errorf("%s %s, want %s %s: %v", r.text(), r.body, c.want, c.body, c.err)
			}
			keyed, typed := r.header.Get("Idempotency-Key") != "", r.header.Get("Content-Type") == "application/json"
			if r.header.Get("Authorization") != "Bearer tp_key" || r.header.Get("User-Agent") != "shop/1" || keyed != (r.method == http.MethodPost) || typed != (c.body != "") {
				t.Errorf("%s: %v", c.want, r.header)
			}
		}
	})
}

func TestALongAnswerIsAStreamAndAPartOfItIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		answer     func(w http.ResponseWriter)
		text, code string
	}{
		"whole": {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{}") }, "{}", ""},
		"early": {func(w http.ResponseWriter) { refuseWith(w, http.StatusConflict, client.CodeStateConflict, "") }, "", client.CodeStateConflict},
		"cut": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"sold":[`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, `{"sold":[`, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *simulator) {
				s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool { c.answer(w); return true }
				proof, err := read(s.client().Proof(t.Context(), campaign))
				list, otherErr := read(s.client().DrawList(t.Context(), campaign))
				for _, err := range []error{err, otherErr} {
					if refused, ok := asError(err); (err == nil) != (c.code == "") || ok && refused.Code != c.code || err != nil && !ok && err.Error() != c.code {
						t.Errorf("%v, want %s", err, c.code)
					}
				}
				if proof != c.text || list != c.text || s.seen()[0].text() != "GET /v1/campaigns/CAMPAIGN/draw/proof" || s.seen()[1].text() != "GET /v1/campaigns/CAMPAIGN/draw/list" {
					t.Errorf("%q, %q", proof, list)
				}
			})
		})
	}
}
