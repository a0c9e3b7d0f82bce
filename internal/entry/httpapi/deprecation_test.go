package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/platform/openapi"
)

// madeUp is a contract with an operation that will be gone, one that is only deprecated,
// and one that stays.
const madeUp = `
openapi: 3.1.0
info: {title: Made up, version: "1"}
paths:
  /v1/leaving: {get: {operationId: leaving, deprecated: true, x-deprecated-at: "2026-12-01", x-sunset: "2027-06-01", x-roles: [app], responses: {}}}
  /v1/deprecated: {get: {operationId: deprecated, deprecated: true, x-deprecated-at: "2026-12-01", x-roles: [app], responses: {}}}
  /v1/staying: {get: {operationId: staying, x-roles: [app], responses: {}}}
`

// Nobody is known here, so all answers are refusals: these say it, too.
func TestADeprecatedOperationSaysSoOnEveryAnswer(t *testing.T) {
	t.Parallel()
	document, err := openapi.Load([]byte(madeUp), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{contract: document}
	app := fiber.New(fiber.Config{ErrorHandler: s.handleError})
	s.mount(app)
	for path, want := range map[string][2]string{
		"/v1/leaving": {"@1796083200", "Tue, 01 Jun 2027 00:00:00 GMT"}, "/v1/deprecated": {"@1796083200", ""}, "/v1/staying": {"", ""},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			response, err := app.Test(httptest.NewRequest(method, path, nil), -1)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if got := [2]string{response.Header.Get("Deprecation"), response.Header.Get("Sunset")}; response.StatusCode != http.StatusUnauthorized || got != want {
				t.Errorf("%s %s: %s, %q; want %q", method, path, response.Status, got, want)
			}
		}
	}
	for bad, reason := range map[string]string{
		strings.Replace(madeUp, `x-deprecated-at: "2026-12-01", `, "", 1):                                    "x-deprecated-at",
		strings.Replace(madeUp, `"2026-12-01"`, `"soon"`, 1):                                                 "x-deprecated-at",
		strings.Replace(madeUp, `"2027-06-01"`, `"2026-12-31"`, 1):                                           "x-sunset",
		strings.Replace(madeUp, `operationId: staying,`, `operationId: staying, x-sunset: "2027-06-01",`, 1): "deprecated",
	} {
		if _, err := openapi.Load([]byte(bad), nil); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, want something about %s", err, reason)
		}
	}
}
