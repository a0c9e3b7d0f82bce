package stripesim

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
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
	if s.unavailable(w) {
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

// asError is the answer to a control.
func (e *apiError) asError() error {
	if e == nil {
		return nil
	}
	return errors.New(e.message)
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
		inner["doc_url"] = "https://stripe.com/docs/error-codes/" + dashed(e.code)
	}
	if e.intent != nil {
		inner["payment_intent"] = e.intent.render()
	}
	if e.method != nil {
		inner["payment_method"] = e.method.render()
	}
	return object{"error": inner}
}

func dashed(code string) string {
	text := []byte(code)
	for i, c := range text {
		if c == '_' {
			text[i] = '-'
		}
	}
	return string(text)
}

// refuse answers with a problem that no key keeps.
func (s *Server) refuse(w http.ResponseWriter, problem *apiError) {
	switch problem.status {
	case http.StatusConflict:
		w.Header().Set("Stripe-Should-Retry", "true")
	case http.StatusTooManyRequests:
		w.Header().Set("Stripe-Rate-Limited-Reason", problem.reason)
	case http.StatusInternalServerError:
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
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.key = k
	return nil
}

// permits returns the answer for a key that may not call an endpoint, or nil.
func (s *Server) permits(endpoint string) *apiError {
	s.faults.mu.Lock()
	key := s.faults.key
	s.faults.mu.Unlock()
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

func (s *Server) putKey(r *http.Request) (any, error) {
	var k Key
	if err := decode(r, &k); err != nil {
		return nil, err
	}
	return k, s.SetKey(k)
}
