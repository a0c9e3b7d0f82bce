package stripesim

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

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
