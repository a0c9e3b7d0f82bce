package stripesim

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// api are the endpoints of Stripe that the sandbox has.
var api = []route{
	{"POST /v1/payment_intents", createIntent, doCreateIntent},
	{"GET /v1/payment_intents", listIntents, page(func(params, *intent) bool { return true })},
	{"GET /v1/payment_intents/{id}", expanding("latest_charge"), getOne[*intent]},
	{"POST /v1/payment_intents/{id}/confirm", confirmIntent, doConfirmIntent},
	{"POST /v1/payment_intents/{id}/capture", captureIntent, doCaptureIntent},
	{"POST /v1/payment_intents/{id}/cancel", cancelIntent, doCancelIntent},
	{"GET /v1/charges", listCharges, page(func(p params, v *charge) bool { return p.is("payment_intent", v.Intent) })},
	{"GET /v1/charges/{id}", expanding("payment_intent"), getOne[*charge]},
	{"POST /v1/refunds", createRefund, doCreateRefund},
	{"GET /v1/refunds", listRefunds, page(func(p params, v *Refund) bool { return p.is("payment_intent", v.Intent) && p.is("charge", v.Charge) })},
	{"GET /v1/refunds/{id}", expandRefund, getOne[*Refund]},
	{"POST /v1/refunds/{id}/cancel", expandRefund, doCancelRefund},
	{"GET /v1/disputes", listDisputes, page(func(p params, v *dispute) bool { return p.is("payment_intent", v.Intent) && p.is("charge", v.Charge) })},
	{"GET /v1/disputes/{id}", expanding("charge", "payment_intent"), getOne[*dispute]},
	{"GET /v1/balance_transactions", listMovements, page(func(p params, m *movement) bool {
		return p.is("source", m.Source) && p.is("type", m.Type) && p.is("currency", m.Currency)
	})},
	{"GET /v1/balance_transactions/{id}", expanding("source"), getOne[*movement]},
	{"GET /v1/events", listEvents, doListEvents},
	{"GET /v1/events/{id}", parameters{}, getOne[*event]},
	{"GET /v1/account", parameters{}, doGetAccount},
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for i := range api {
		mux.HandleFunc(api[i].pattern, s.serve(&api[i]))
	}
	mux.HandleFunc("/v1/", s.unknown)
	mux.HandleFunc("GET /authenticate/{intent}/{token}", s.authentication)
	mux.HandleFunc("POST /authenticate/{intent}/{token}", s.authentication)
	mux.HandleFunc("GET /returned", returned)
	s.controls(mux)
	return mux
}

// unknown answers a path of Stripe's that the sandbox has not.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Request-Id", newID("req"))
	w.Header().Set("Stripe-Version", apiVersion)
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

// The types of Stripe's errors.
const (
	cardError        = "card_error"
	invalidRequest   = "invalid_request_error"
	idempotencyError = "idempotency_error"
	apiErrorType     = "api_error"
)

// apiError is an answer other than 200.
type apiError struct {
	status      int
	kind        string // type
	code        string
	declineCode string
	advice      string
	param       string
	message     string
	charge      string
	intent      *intent
	method      *method // whose payment failed
	begun       bool    // the work had begun: an idempotency key keeps this answer
	reason      string  // of a rate limit
}

// refuse is a request that is wrong in itself. No idempotency key keeps the answer.
func refuse(code, param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: invalidRequest, code: code, param: param, message: fmt.Sprintf(format, args...)}
}

// missing is an object that there is not.
func missing(status int, what, param, id string) *apiError {
	return &apiError{status: status, kind: invalidRequest, code: "resource_missing", param: param,
		message: fmt.Sprintf("No such %s: '%s'", what, id)}
}

// conflict is a request that the state of an intent forbids.
func conflict(i *intent, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: invalidRequest, code: "payment_intent_unexpected_state",
		message: fmt.Sprintf(format, args...), intent: i, begun: true}
}

// refused is like refuse, for what shows only when the work has begun.
func refused(code, param, format string, args ...any) *apiError {
	e := refuse(code, param, format, args...)
	e.begun = true
	return e
}

func limited(reason string) *apiError {
	return &apiError{status: http.StatusTooManyRequests, kind: invalidRequest, code: "rate_limit", reason: reason,
		message: "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits."}
}

func broken() *apiError {
	return &apiError{status: http.StatusInternalServerError, kind: apiErrorType, begun: true,
		message: "Sorry! There was an error while talking to one of our backends. Support has been notified."}
}

// body is the answer as Stripe writes it.
func (e *apiError) body() object {
	inner := object{"type": e.kind, "message": e.message}
	for name, value := range map[string]string{
		"code": e.code, "decline_code": e.declineCode, "advice_code": e.advice, "param": e.param, "charge": e.charge,
	} {
		if value != "" {
			inner[name] = value
		}
	}
	if e.code != "" {
		inner["doc_url"] = "https://stripe.com/docs/error-codes/" + strings.ReplaceAll(e.code, "_", "-")
	}
	if e.intent != nil {
		inner["payment_intent"] = e.intent.render(0)
	}
	if e.method != nil {
		inner["payment_method"] = e.method.render()
	}
	return object{"error": inner}
}

// refuse answers with a problem that no key keeps.
func (s *Server) refuse(w http.ResponseWriter, problem *apiError) {
	switch problem.status {
	case http.StatusConflict:
		w.Header().Set("Stripe-Should-Retry", "true")
	case http.StatusTooManyRequests:
		w.Header().Set("Stripe-Rate-Limited-Reason", problem.reason)
	case http.StatusInternalServerError, http.StatusServiceUnavailable:
	default:
		w.Header().Set("Stripe-Should-Retry", "false")
	}
	write(w, problem.status, problem.body())
}

// Key is what the secret key is good for. A key that lacks the permission to read something
// may not write it either.
type Key struct {
	Expired bool     `json:"expired"` // every request of the API is answered with 401
	Lacks   []string `json:"lacks"`   // permissions of a restricted key, such as charge_write: what needs them is answered with 403
}

// resources are Stripe's names, in permissions, of what its paths are about.
var resources = map[string]string{
	"payment_intents": "payment_intent", "charges": "charge", "refunds": "charge", "disputes": "dispute", "events": "event", "balance_transactions": "balance_transaction_source", "account": "accounts_kyc_basic",
}

// SetKey says what the secret key is good for from now on. The controls take it all the same.
func (s *Server) SetKey(k Key) error {
	for _, lacks := range k.Lacks {
		resource, _ := strings.CutSuffix(lacks, "_read")
		resource, _ = strings.CutSuffix(resource, "_write")
		if resource == lacks || !slices.Contains(slices.Collect(maps.Values(resources)), resource) {
			return fmt.Errorf("there is no permission %q", lacks)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = k
	return nil
}

// permits returns the answer for a key that may not call an endpoint, or nil.
func (s *Server) permits(endpoint string) *apiError {
	key := s.key
	if key.Expired {
		return &apiError{status: http.StatusUnauthorized, kind: invalidRequest, code: "api_key_expired", message: "Expired API Key provided: " + s.redacted()}
	}
	method, path, _ := strings.Cut(endpoint, " ")
	resource, _, _ := strings.Cut(strings.TrimPrefix(path, "/v1/"), "/")
	permission := resources[resource]
	read, needs := permission+"_read", permission+"_write"
	if method == http.MethodGet {
		needs = read
	}
	if permission == "" || !slices.Contains(key.Lacks, needs) && !slices.Contains(key.Lacks, read) {
		return nil
	}
	return &apiError{status: http.StatusForbidden, kind: invalidRequest, message: fmt.Sprintf("The provided key '%s' does not have the required permissions for this endpoint on "+
		"account '%s'. Having the 'rak_%s' permission would allow this request to continue.", s.redacted(), s.Account(), needs)}
}

// redacted is the key as messages show it.
func (s *Server) redacted() string {
	const shown = 8
	return s.settings.Key[:min(shown, len(s.settings.Key))] + "***"
}
