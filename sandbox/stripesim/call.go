package stripesim

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"time"
)

// call is one request to the API of Stripe.
type call struct {
	route       *route
	id          string // of the request, req_…
	object      string // id in the path
	path        string
	key         string // idempotency key
	params      params
	fingerprint string
	base        string // URL of the sandbox, as the client calls it
}

// route is an endpoint.
type route struct {
	pattern string // of http.ServeMux
	takes   parameters
	do      func(*change, *call) (object, *apiError)
	plan    func(*change, *call) fault // what will go wrong with a call, if anything; optional
}

// mostBody bounds the form of a request, in bytes.
const mostBody = 256 << 10

// serve answers a call: who asks, whether it is too much, what it says, whether its key
// has an answer already; then the work, in one change.
func (s *Server) serve(route *route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{route: route, id: newID("req"), object: r.PathValue("id"), path: r.URL.Path, base: "http://" + r.Host}
		w.Header().Set("Request-Id", c.id)
		w.Header().Set("Stripe-Version", apiVersion)
		if s.unavailable(w) {
			return
		}
		if problem := s.enter(r, route.pattern); problem != nil {
			s.refuse(w, problem)
			return
		}
		if problem := c.read(w, r); problem != nil {
			s.refuse(w, problem)
			return
		}
		if c.key != "" {
			w.Header().Set("Idempotency-Key", c.key)
		}
		known, problem := s.lockKey(c)
		switch {
		case problem != nil:
			s.refuse(w, problem)
		case known != nil:
			w.Header().Set("Idempotent-Replayed", "true")
			w.Header().Set("Original-Request", known.Request)
			if known.Status != http.StatusOK {
				w.Header().Set("Stripe-Should-Retry", "false")
			}
			write(w, known.Status, known.Body)
		default:
			s.work(w, r, c)
		}
	}
}

// unavailable answers for a sandbox that is away.
func (s *Server) unavailable(w http.ResponseWriter) bool {
	switch _, away := s.faults.get(); away {
	case Unavailable:
		write(w, http.StatusServiceUnavailable, (&apiError{kind: apiErrorType, message: "The service is unavailable. Please try again later."}).body())
		return true
	case Silent:
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	return false
}

// enter checks key, version and limits, and what the key may do.
func (s *Server) enter(r *http.Request, endpoint string) *apiError {
	if !s.authentic(r) {
		return &apiError{status: http.StatusUnauthorized, kind: invalidRequest, message: "Invalid API Key provided. The sandbox takes the key that it was started with."}
	}
	if problem := s.permits(endpoint); problem != nil {
		return problem
	}
	if v := r.Header.Get("Stripe-Version"); v != "" && v != apiVersion {
		return refuse("", "", "Invalid Stripe API version: %s (the sandbox speaks %s)", v, apiVersion)
	}
	if r.Header.Get("Stripe-Account") != "" || r.Header.Get("Stripe-Context") != "" {
		return &apiError{status: http.StatusForbidden, kind: invalidRequest, code: "account_invalid", message: "The sandbox has one account, and no connected ones."}
	}
	s.mu.Lock()
	s.counts.requests++
	s.counts.endpoints[endpoint]++
	s.mu.Unlock()
	if reason := s.limits.admit(endpoint); reason != "" {
		s.mu.Lock()
		s.counts.limited++
		s.mu.Unlock()
		return limited(reason)
	}
	return nil
}

// read reads parameters and idempotency key.
func (c *call) read(w http.ResponseWriter, r *http.Request) (problem *apiError) {
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	kind := r.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(kind); r.Method == http.MethodPost && r.ContentLength != 0 && media != "application/x-www-form-urlencoded" {
		return refuse("", "", "Invalid Content-Type: %q. Requests are application/x-www-form-urlencoded.", kind)
	}
	if err := r.ParseForm(); err != nil {
		return refuse("", "", "The request cannot be read: %s", err)
	}
	if c.params, problem = c.route.takes.read(r.Form); problem != nil {
		return problem
	}
	if r.Method == http.MethodPost {
		c.key = r.Header.Get("Idempotency-Key")
		if len(c.key) > longestKey {
			return refuse("", "", "Idempotency keys can be at most %d characters.", longestKey)
		}
		c.fingerprint = digest(c.params.fingerprint())
	}
	return nil
}

// work does a call, with its faults.
func (s *Server) work(w http.ResponseWriter, r *http.Request, c *call) {
	locked := true
	defer func() {
		if locked {
			s.unlockKey(c)
		}
	}()
	injected, wait := s.faults.request()
	planned := noFault
	if c.route.plan != nil {
		s.mutate(c.id, c.key, c.base, func(ch *change) { planned = c.route.plan(ch, c) })
	}
	if planned == slow {
		wait += s.settings.Slow
	}
	s.pause(wait)
	switch {
	case injected == refusedAsTooMany || planned == tooMany:
		s.inject(w, limited("injected"))
		return
	case injected == timeoutBefore:
		s.unlockKey(c)
		locked = false
		s.hang(r)
	}
	status, body, seq := s.perform(c, injected, planned)
	if err := s.journal.wait(seq); err != nil {
		s.refuse(w, &apiError{status: http.StatusInternalServerError, kind: apiErrorType, message: err.Error()})
		return
	}
	s.unlockKey(c)
	locked = false
	if injected == timeoutAfter || (planned == timeoutAfterCharge && status == http.StatusOK) {
		s.hang(r)
	}
	if status != http.StatusOK {
		w.Header().Set("Stripe-Should-Retry", "false")
	}
	write(w, status, body)
}

// perform makes the change of a call, and remembers its answer with it.
func (s *Server) perform(c *call, injected outcome, planned fault) (status int, body json.RawMessage, seq int64) {
	seq = s.mutate(c.id, c.key, c.base, func(ch *change) {
		var done object
		var problem *apiError
		switch {
		case injected == errorBefore || planned == errorOnce:
			s.counts.injected++
			problem = broken()
		case s.full(c):
			problem = refuse("", "", "The sandbox is full. Start it with another folder.")
		default:
			if done, problem = c.route.do(ch, c); problem == nil {
				ch.expand(done, c.params["expand[]"])
			}
		}
		if injected == errorAfter && (problem == nil || problem.begun) {
			s.counts.injected++
			problem = broken()
		}
		status = http.StatusOK
		if problem != nil {
			status, done = problem.status, problem.body()
		}
		body, _ = json.MarshalIndent(done, "", "  ")
		if c.key != "" && (problem == nil || problem.begun) {
			ch.storeAnswer(c.key, &answer{Created: ch.unix(), Request: c.id, Path: c.path, Params: c.fingerprint, Status: status, Body: body})
		}
	})
	return status, body, seq
}

// full tells whether there is no room for what a call makes. Payments that are under way
// have some room left.
func (s *Server) full(c *call) bool {
	if !strings.HasPrefix(c.route.pattern, "POST") {
		return false
	}
	if c.object == "" {
		return s.state.bytes > s.settings.MaxBytes
	}
	return s.state.bytes > s.settings.MaxBytes*2
}

// pause waits, whether or not the client is still there.
func (s *Server) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-s.closed.Done():
	}
}

// hang keeps the connection without an answer for longer than a client waits, and then
// closes it. It does not return.
func (s *Server) hang(r *http.Request) {
	s.mu.Lock()
	s.counts.injected++
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), s.faults.hang(s.settings.Hang))
	defer cancel()
	select {
	case <-ctx.Done():
	case <-s.closed.Done():
	}
	panic(http.ErrAbortHandler)
}

// inject answers with a fault that was asked for.
func (s *Server) inject(w http.ResponseWriter, problem *apiError) {
	s.mu.Lock()
	s.counts.injected++
	s.mu.Unlock()
	s.refuse(w, problem)
}

// authentic compares the secret key, as Bearer or as the user name of Basic.
func (s *Server) authentic(r *http.Request) bool {
	if name, password, ok := r.BasicAuth(); ok {
		return same(name, s.settings.Key) && password == ""
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && same(token, s.settings.Key)
}

func same(given, want string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

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

// lockKey finds the answer that a key has, or marks the key as in use until the call
// returns it.
func (s *Server) lockKey(r *call) (known *answer, problem *apiError) {
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

func (s *Server) unlockKey(r *call) {
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
