package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"triprize/api"
)

// conforming holds every answer of an operation against the contract, with
// another reader of it than the server's own: its status, headers, media type and
// body, and that the code of a problem is among those that the contract lists for
// the operation. The parameters of a request that succeeds must fit the contract too. A violation
// fails the test that has sent the request, or else the system that answered.
type conforming struct {
	next http.RoundTripper

	once   sync.Once
	router routers.Router
	bodies *jsonschema.Compiler
	err    error

	mu       sync.Mutex
	schemas  map[string]*jsonschema.Schema // of bodies, by place in the contract
	breaches map[string][]string           // by the name of a test, or a host
}

// contractURL is the contract's name among schemas; nothing is fetched.
const contractURL = "file:///openapi.json"

// load reads the contract.
func (c *conforming) load() {
	parsed, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		c.err = err
		return
	}
	if c.router, c.err = gorillamux.NewRouter(parsed); c.err != nil {
		return
	}
	text, err := parsed.MarshalJSON()
	if err != nil {
		c.err = err
		return
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		c.err = err
		return
	}
	c.bodies, c.schemas = jsonschema.NewCompiler(), make(map[string]*jsonschema.Schema)
	c.bodies.DefaultDraft(jsonschema.Draft2020)
	c.bodies.AssertFormat()
	c.err = c.bodies.AddResource(contractURL, document)
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
	of := request.URL.Host
	if s, ok := request.Context().Value(sender{}).(*System); ok {
		of = s.name
	}
	if err := c.check(request, response, body); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.breaches[of] = append(c.breaches[of],
			fmt.Sprintf("%s %s: %d: %v\n%s", request.Method, request.URL, response.StatusCode, err, Tail(body, 1000)))
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
	// Bodies are checked below: there the schema of each is compiled once.
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: path, Route: route, Options: &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, ExcludeRequestBody: true, ExcludeResponseBody: true}}
	if response.StatusCode < 300 {
		if err := openapi3filter.ValidateRequest(request.Context(), input); err != nil {
			return fmt.Errorf("a request that the contract refuses was done: %w", err)
		}
	}
	answered := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: response.StatusCode, Header: response.Header, Options: input.Options}
	if err := openapi3filter.ValidateResponse(request.Context(), answered); err != nil {
		return err
	}
	promised := route.Operation.Responses.Status(response.StatusCode)
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case request.Method == http.MethodHead || len(promised.Value.Content) == 0:
		if len(body) > 0 {
			return errors.New("the contract knows of no body")
		}
		return nil
	case promised.Value.Content[media] == nil:
		return fmt.Errorf("the contract knows of no %q", media)
	}
	if promised.Value.Content[media].Schema != nil && strings.HasSuffix(media, "json") {
		place := cmp.Or(promised.Ref, pointer(route, "responses", strconv.Itoa(response.StatusCode)))
		if err := c.checkBody(body, place, media); err != nil {
			return err
		}
	}
	if media == "application/problem+json" {
		return listed(route.Operation, response.StatusCode, body)
	}
	return nil
}

// pointer returns the place of something in an operation.
func pointer(route *routers.Route, place ...string) string {
	pointer := "#"
	for _, part := range append([]string{"paths", route.Path, strings.ToLower(route.Method)}, place...) {
		pointer += "/" + escaped(part)
	}
	return pointer
}

// escaped makes one part of a JSON pointer in a URL of a name.
func escaped(name string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
}

// checkBody checks a body against the schema that a place in the contract, of a
// request or a response, has for it.
func (c *conforming) checkBody(body []byte, place, media string) error {
	pointer := place + "/content/" + escaped(media) + "/schema"
	c.mu.Lock()
	schema, err := c.schemas[pointer], error(nil)
	if schema == nil {
		schema, err = c.bodies.Compile(contractURL + pointer)
		c.schemas[pointer] = schema
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schema.Validate(value)
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

// of returns what was wrong with the answers to some tests, or of some hosts.
func (c *conforming) of(names []string) (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		all = append(all, c.breaches[name]...)
	}
	return all
}
