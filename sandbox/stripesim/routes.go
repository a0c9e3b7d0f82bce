package stripesim

import (
	"net/http"
	"strings"
)

// api are the endpoints of Stripe that the sandbox has.
var api = []route{
	{pattern: "POST /v1/payment_intents", takes: createIntent, do: doCreateIntent},
	{pattern: "GET /v1/payment_intents", takes: listIntents, do: doListIntents},
	{pattern: "GET /v1/payment_intents/{id}", takes: expanding("latest_charge"), do: doGetIntent},
	{pattern: "POST /v1/payment_intents/{id}/confirm", takes: confirmIntent, do: doConfirmIntent, plan: planIntent},
	{pattern: "POST /v1/payment_intents/{id}/capture", takes: captureIntent, do: doCaptureIntent, plan: planIntent},
	{pattern: "POST /v1/payment_intents/{id}/cancel", takes: cancelIntent, do: doCancelIntent, plan: planIntent},
	{pattern: "GET /v1/charges", takes: listCharges, do: doListCharges},
	{pattern: "GET /v1/charges/{id}", takes: expanding("payment_intent"), do: doGetCharge},
	{pattern: "POST /v1/refunds", takes: createRefund, do: doCreateRefund},
	{pattern: "GET /v1/refunds", takes: listRefunds, do: doListRefunds},
	{pattern: "GET /v1/refunds/{id}", takes: expandRefund, do: doGetRefund},
	{pattern: "POST /v1/refunds/{id}/cancel", takes: expandRefund, do: doCancelRefund},
	{pattern: "GET /v1/disputes", takes: listDisputes, do: doListDisputes},
	{pattern: "GET /v1/disputes/{id}", takes: expanding("charge", "payment_intent"), do: doGetDispute},
	{pattern: "GET /v1/balance_transactions", takes: listMovements, do: doListMovements},
	{pattern: "GET /v1/balance_transactions/{id}", takes: expanding("source"), do: doGetMovement},
	{pattern: "GET /v1/events", takes: listEvents, do: doListEvents},
	{pattern: "GET /v1/events/{id}", takes: parameters{}, do: doGetEvent},
	{pattern: "GET /v1/account", takes: parameters{}, do: doGetAccount},
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for i := range api {
		mux.HandleFunc(api[i].pattern, s.serve(&api[i]))
	}
	mux.HandleFunc("/v1/", s.unknown)
	mux.HandleFunc("GET /authenticate/{intent}/{token}", s.showPage)
	mux.HandleFunc("POST /authenticate/{intent}/{token}", s.answerPage)
	mux.HandleFunc("GET /returned", showReturned)
	s.controls(mux)
	return mux
}

// unknown answers a path of Stripe's that the sandbox has not.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Request-Id", newID("req"))
	w.Header().Set("Stripe-Version", apiVersion)
	if s.gone(w) {
		return
	}
	if problem := s.enter(r, "unknown"); problem != nil {
		s.refuse(w, problem)
		return
	}
	s.refuse(w, &apiError{status: http.StatusNotFound, kind: invalidRequest,
		message: "Unrecognized request URL (" + r.Method + ": " + r.URL.Path + "). The sandbox has a part of Stripe's API only."})
}

func doGetAccount(c *change, _ *call) (object, *apiError) {
	return object{
		"id": c.server.Account(), "object": "account", "business_type": "company", "capabilities": object{"card_payments": "active"}, "charges_enabled": true,
		"country": "JP", "created": 1700000000, "default_currency": "jpy", "details_submitted": true, "email": "sandbox@example.com", "metadata": object{},
		"payouts_enabled": true, "type": "standard",
	}, nil
}

// Account is the id of the sandbox's account. It follows from the key.
func (s *Server) Account() string { return "acct_" + digest(s.settings.Key)[:16] }

func upper(text string) string { return strings.ToUpper(text) }
