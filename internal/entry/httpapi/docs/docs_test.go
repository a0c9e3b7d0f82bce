package docs_test

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/entry/httpapi"
	"triprize/internal/entry/httpapi/docs"
)

func TestTheReferenceIsShownWithoutAnythingFromElsewhere(t *testing.T) {
	t.Parallel()
	document, err := httpapi.LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	if err := docs.Mount(app, document.JSON); err != nil {
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

// A browser runs the scripts of the page that checks a draw, and no others, wherever they
// come from.
func TestThePageThatChecksADrawRunsOnlyItsOwnScripts(t *testing.T) {
	t.Parallel()
	document, err := httpapi.LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	if err := docs.Mount(app, document.JSON); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/verify", "/verify/", "/verify?campaign=x"} {
		response, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil), -1)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		policy := response.Header.Get("Content-Security-Policy")
		if err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != fiber.MIMETextHTMLCharsetUTF8 {
			t.Fatalf("%s: %s, %v, %v", path, response.Status, response.Header, err)
		}
		if !strings.HasPrefix(policy, "default-src 'none';") || !strings.HasSuffix(policy, "; frame-ancestors 'none'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "//") {
			t.Errorf("%s has the policy %q", path, policy)
		}
		inline := regexp.MustCompile(`(?s)<(?:script|style)[^>]*>(.*?)</(?:script|style)>`).FindAllSubmatch(page, -1)
		for _, found := range inline {
			hash := sha256.Sum256(found[1])
			if !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'") {
				t.Errorf("%s: the policy does not know what begins with %.60s", path, found[1])
			}
		}
		if len(inline) != 3 || strings.Count(policy, "'sha256-") != 3 {
			t.Errorf("%s: %d scripts and styles, and the policy %q", path, len(inline), policy)
		}
		if found := regexp.MustCompile(`(?:src|<link[^>]* href)="([^"]*)"`).FindAllStringSubmatch(string(page), -1); len(found) != 1 || found[0][1] != "data:," {
			t.Errorf("%s loads %q", path, found)
		}
	}
}
