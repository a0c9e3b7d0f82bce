package stripesim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
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
		problem := s.enter(r, route.pattern)
		if problem == nil {
			problem = c.read(w, r)
		}
		if c.key != "" {
			w.Header().Set("Idempotency-Key", c.key)
		}
		var known *answer
		if problem == nil {
			known, problem = s.lockKey(c)
		}
		switch {
		case problem != nil:
			s.refuse(w, problem)
		case known != nil:
			w.Header().Set("Idempotent-Replayed", "true")
			w.Header().Set("Original-Request", known.Request)
			finish(w, known.Status, known.Body)
		default:
			s.work(w, r, c)
		}
	}
}

// finish sends the answer of work that was done or tried: the same request would be answered alike.
func finish(w http.ResponseWriter, status int, body json.RawMessage) {
	if status != http.StatusOK {
		w.Header().Set("Stripe-Should-Retry", "false")
	}
	write(w, status, body)
}

// enter checks key, version and limits, and what the key may do.
func (s *Server) enter(r *http.Request, endpoint string) *apiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.away == Unavailable:
		return &apiError{status: http.StatusServiceUnavailable, kind: apiErrorType, message: "The service is unavailable. Please try again later."}
	case s.away == Silent:
		panic(http.ErrAbortHandler) // net/http closes the connection
	case !s.authentic(r):
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
	s.counts.requests++
	s.counts.endpoints[endpoint]++
	reason := ""
	switch {
	case !s.limiter(endpoint, s.settings.EndpointRate).Allow():
		reason = "endpoint-rate"
	case !s.limiter("all", s.settings.Rate).Allow():
		reason = "global-rate"
	default:
		return nil
	}
	s.counts.limited++
	return limited(reason)
}

// limiter counts requests, as Stripe does: all together, and those of each endpoint.
func (s *Server) limiter(of string, perSecond int) *rate.Limiter {
	if s.limits[of] == nil {
		limit := rate.Limit(perSecond)
		if perSecond < 0 {
			limit = rate.Inf
		}
		s.limits[of] = rate.NewLimiter(limit, max(perSecond, 0))
	}
	return s.limits[of]
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
		if key := r.Header.Get("Idempotency-Key"); len(key) > longestKey {
			return refuse("", "", "Idempotency keys can be at most %d characters.", longestKey)
		}
		c.key = r.Header.Get("Idempotency-Key")
		c.fingerprint = digest(c.params.fingerprint())
	}
	return nil
}

// work does a call, with its faults.
func (s *Server) work(w http.ResponseWriter, r *http.Request, c *call) {
	unlock := sync.OnceFunc(func() { s.unlockKey(c) })
	defer unlock()
	var planned fault
	_ = s.mutate(c, func(ch *change) { planned = ch.plan() }) // the second change fails, too
	s.pause(planned)
	switch planned {
	case tooMany:
		s.refuse(w, limited("injected"))
		return
	case timeoutBefore:
		unlock()
		s.hang(r)
	}
	status, body, err := s.perform(c, planned)
	if err != nil {
		s.refuse(w, &apiError{status: http.StatusInternalServerError, kind: apiErrorType, message: err.Error()})
		return
	}
	unlock()
	if planned == timeoutAfter || (planned == timeoutAfterCharge && status == http.StatusOK) {
		s.hang(r)
	}
	finish(w, status, body)
}

// perform makes the change of a call, and remembers its answer with it.
func (s *Server) perform(c *call, planned fault) (status int, body json.RawMessage, err error) {
	err = s.mutate(c, func(ch *change) {
		var done object
		var problem *apiError
		switch {
		case planned == errorBefore:
			problem = broken()
		case s.full(c):
			problem = refuse("", "", "The sandbox is full. Start it with another folder.")
		default:
			if done, problem = c.route.do(ch, c); problem == nil {
				ch.expand(done, c.params["expand[]"])
			}
		}
		if planned == errorAfter && (problem == nil || problem.begun) {
			problem = broken()
		}
		status = http.StatusOK
		if problem != nil {
			status, done = problem.status, problem.body()
		}
		body, _ = json.MarshalIndent(done, "", "  ")
		if c.key != "" && (problem == nil || problem.begun) {
			a := &answer{Created: ch.unix(), Request: c.id, Path: c.path, Params: c.fingerprint, Status: status, Body: body}
			ch.keys[c.key] = a
			ch.records = append(ch.records, record{"key", c.key, encode(a)})
		}
	})
	return status, body, err
}

// mostObjects bounds the memory: objects and answers of keys. Payments that are under way have as much
// room again.
const mostObjects = 300_000

// full tells whether there is no room for what a call makes.
func (s *Server) full(c *call) bool {
	n := len(s.state.by) + len(s.state.keys)
	return c.makes() && (n > 2*mostObjects || n > mostObjects && c.object == "")
}

// makes tells whether a call may make objects.
func (c *call) makes() bool { return strings.HasPrefix(c.route.pattern, http.MethodPost) }

// pause waits, whether or not the client is still there.
func (s *Server) pause(planned fault) {
	s.mu.Lock()
	d := time.Duration(s.faults.LatencyMS) * time.Millisecond
	s.mu.Unlock()
	if planned == slow {
		d += s.settings.Slow
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
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(time.Duration(s.faults.HangMS)*time.Millisecond, s.settings.Hang))
	s.mu.Unlock()
	defer cancel()
	select {
	case <-ctx.Done():
	case <-s.closed.Done():
	}
	panic(http.ErrAbortHandler)
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

// lockKey finds the answer that a key has, or marks the key as in use until the call
// returns it.
func (s *Server) lockKey(r *call) (known *answer, problem *apiError) {
	if r.key == "" {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse[r.key] {
		return nil, &apiError{status: http.StatusConflict, kind: idempotencyError, code: "idempotency_key_in_use",
			message: "There is currently another in-progress request using this Stripe Idempotent Key (that probably means you submitted twice, and the other request is still going through): " + r.key + ". Please try again later."}
	}
	a := s.state.keys[r.key]
	switch {
	case a == nil || s.now().Unix()-a.Created >= int64(keyLife.Seconds()):
		s.inUse[r.key] = true
		return nil, nil
	case a.Path != r.path || a.Params != r.fingerprint:
		return nil, &apiError{status: http.StatusBadRequest, kind: idempotencyError,
			message: "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key other than '" + r.key + "' if you meant to execute a different request."}
	}
	return a, nil
}

func (s *Server) unlockKey(r *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inUse, r.key)
}

// digest shortens what is compared only.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
