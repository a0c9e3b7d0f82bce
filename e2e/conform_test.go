package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"triprize/api"
)

// conforming holds every answer of an operation against the contract, with
// another library than the server's own: its status, headers, body, and that the
// code of a problem is among those that the contract lists for the operation. A
// request that succeeds must fit the contract too. What does not is held against
// the system that answered.
type conforming struct {
	next http.RoundTripper

	once   sync.Once
	router routers.Router
	err    error

	mu       sync.Mutex
	breaches map[string][]string // by host
}

// load reads the contract.
func (c *conforming) load() {
	parsed, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		c.err = err
		return
	}
	c.router, c.err = gorillamux.NewRouter(parsed)
}

// RoundTrip implements http.RoundTripper.
func (c *conforming) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); media == "text/event-stream" {
		return response, nil
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	c.once.Do(c.load)
	if err := c.check(request, response, body); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.breaches[request.URL.Host] = append(c.breaches[request.URL.Host],
			fmt.Sprintf("%s %s: %d: %v\n%s", request.Method, request.URL, response.StatusCode, err, tail(body, 1000)))
	}
	return response, nil
}

func (c *conforming) check(request *http.Request, response *http.Response, body []byte) error {
	if c.err != nil {
		return c.err
	}
	route, path, err := c.router.FindRoute(request)
	if err != nil {
		return nil //nolint:nilerr // not an operation
	}
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: path, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}}
	if response.StatusCode < 300 && request.GetBody != nil {
		sent, err := request.GetBody()
		if err != nil {
			return err
		}
		again := request.Clone(request.Context())
		again.Body = sent
		input.Request = again
	}
	if response.StatusCode < 300 {
		if err := openapi3filter.ValidateRequest(request.Context(), input); err != nil {
			return fmt.Errorf("a request that the contract refuses was done: %w", err)
		}
	}
	answered := (&openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: response.StatusCode,
		Header: response.Header, Options: input.Options}).SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(request.Context(), answered); err != nil {
		return err
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") {
		return listed(route.Operation, response.StatusCode, body)
	}
	return nil
}

// listed tells whether a problem's code is among the contract's examples for it.
func listed(operation *openapi3.Operation, status int, body []byte) error {
	var problem struct{ Code string }
	if err := json.Unmarshal(body, &problem); err != nil {
		return err
	}
	media := operation.Responses.Status(status).Value.Content["application/problem+json"]
	if media == nil || media.Examples[problem.Code] == nil {
		return fmt.Errorf("the contract does not list the code %q", problem.Code)
	}
	return nil
}

// of returns what was wrong with the answers of some hosts.
func (c *conforming) of(hosts []string) (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, host := range hosts {
		all = append(all, c.breaches[host]...)
	}
	return all
}
