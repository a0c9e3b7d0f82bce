package stripesim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
)

// answer is what an idempotency key remembers for 24 hours: the answer to its first
// request, be it good or bad. A request that was refused before its work began leaves
// nothing.
type answer struct {
	Created int64  // Unix seconds
	Request string // id of the request
	Path    string
	Params  string // their fingerprint
	Status  int
	Body    json.RawMessage
}

// longestKey is Stripe's bound, in characters.
const longestKey = 255

// fits refuses a key that was used for another request.
func (a *answer) fits(r *call) *apiError {
	if a.Path != r.path || a.Params != r.fingerprint {
		return &apiError{status: http.StatusBadRequest, kind: idempotencyError,
			message: "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key other than '" + r.key + "' if you meant to execute a different request."}
	}
	return nil
}

func keyInUse(key string) *apiError {
	return &apiError{status: http.StatusConflict, kind: idempotencyError, code: "idempotency_key_in_use",
		message: "There is currently another in-progress request using this Stripe Idempotent Key (that probably means you submitted twice, and the other request is still going through): " + key + ". Please try again later."}
}

// claim finds the answer that a key has, or marks the key as in use until the call
// returns it.
func (s *Server) claim(r *call) (known *answer, problem *apiError) {
	if r.key == "" {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse[r.key] {
		return nil, keyInUse(r.key)
	}
	if a := s.state.keys[r.key]; a != nil && s.now().Unix()-a.Created < int64(keyLife.Seconds()) {
		if problem := a.fits(r); problem != nil {
			return nil, problem
		}
		return a, nil
	}
	s.inUse[r.key] = true
	return nil, nil
}

func (s *Server) unclaim(r *call) {
	if r.key == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inUse, r.key)
}

// digest shortens what is compared only.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
