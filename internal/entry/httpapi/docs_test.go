package httpapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
)

func TestTheReferenceIsShownWithoutAnythingFromElsewhere(t *testing.T) {
	t.Parallel()
	document, err := LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	if err := (&Server{contract: document}).mountDocs(app); err != nil {
		t.Fatal(err)
	}
	get := func(path string) (http.Header, string) {
		t.Helper()
		response, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil), -1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v", path, response.Status, err)
		}
		return response.Header, string(body)
	}
	for _, path := range []string{"/docs", "/docs/"} {
		header, page := get(path)
		policy := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "//") {
			t.Errorf("%s has the policy %q", path, policy)
		}
		if strings.Contains(page, "//") || regexp.MustCompile(`<script>|<style| style=| on[a-z]+=`).MatchString(page) {
			t.Errorf("%s has what its policy does not let a browser load or run:\n%s", path, page)
		}
		for _, found := range regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(page, -1) {
			if _, text := get(found[1]); text == "" {
				t.Errorf("%s is empty", found[1])
			}
		}
	}
	if _, script := get("/docs/start.js"); !strings.Contains(script, `"/openapi.json"`) {
		t.Errorf("the reference is of something else:\n%s", script)
	}
	for _, path := range []string{"/docs/oauth2-redirect.html", "/docs/swagger-ui.js", "/docs/index.html"} {
		response, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil), -1)
		if err != nil || response.StatusCode != http.StatusNotFound {
			t.Errorf("%s is served: %v, %v", path, response, err)
		}
		_ = response.Body.Close()
	}
}
