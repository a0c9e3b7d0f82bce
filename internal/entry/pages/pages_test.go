package pages_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/campaign"
	"triprize/internal/entry/httpapi"
	"triprize/internal/entry/pages"
)

// pagesOf returns how to get the pages.
func pagesOf(t *testing.T) (get func(path string) (status int, header http.Header, page string)) {
	t.Helper()
	document, err := httpapi.LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	if err := pages.Mount(app, pages.Options{Contract: document.JSON,
		List: func(context.Context, int) ([]campaign.Campaign, error) { return nil, nil }}); err != nil {
		t.Fatal(err)
	}
	return func(path string) (int, http.Header, string) {
		t.Helper()
		response, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil), -1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header, string(body)
	}
}

// A browser loads and runs what belongs to a page, and nothing else, wherever it comes from.
func TestAPageLoadsNothingFromElsewhereAndRunsOnlyItsOwnScripts(t *testing.T) {
	t.Parallel()
	get := pagesOf(t)
	for path, inlined := range map[string]int{"/docs": 0, "/docs/": 0, "/verify": 3, "/verify/": 3, "/verify?campaign=x": 3} {
		status, header, page := get(path)
		policy := header.Get("Content-Security-Policy")
		if status != http.StatusOK || header.Get("Content-Type") != fiber.MIMETextHTMLCharsetUTF8 {
			t.Fatalf("%s: %d, %v", path, status, header)
		}
		if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "//") || inlined > 0 && !strings.HasSuffix(policy, "; frame-ancestors 'none'") {
			t.Errorf("%s has the policy %q", path, policy)
		}
		if inlined == 0 && (strings.Contains(page, "//") || regexp.MustCompile(`<script>|<style| style=| on[a-z]+=`).MatchString(page)) {
			t.Errorf("%s has what its policy does not let a browser load or run:\n%s", path, page)
		}
		inline := regexp.MustCompile(`(?s)<(?:script|style)[^>]*>(.*?)</(?:script|style)>`).FindAllStringSubmatch(page, -1)
		if inlined == 0 {
			inline = nil // elements that only name a file
		}
		for _, found := range inline {
			hash := sha256.Sum256([]byte(found[1]))
			if !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'") {
				t.Errorf("%s: the policy does not know what begins with %.60s", path, found[1])
			}
		}
		if len(inline) != inlined || strings.Count(policy, "'sha256-") != inlined {
			t.Errorf("%s: %d scripts and styles, and the policy %q", path, len(inline), policy)
		}
		if inlined > 0 {
			if found := regexp.MustCompile(`(?:src|<link[^>]* href)="([^"]*)"`).FindAllStringSubmatch(page, -1); len(found) != 1 || found[0][1] != "data:," {
				t.Errorf("%s loads %q", path, found)
			}
			continue
		}
		for _, found := range regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(page, -1) {
			if status, _, text := get(found[1]); status != http.StatusOK || text == "" {
				t.Errorf("%s: %d", found[1], status)
			}
		}
	}
	if _, _, script := get("/static/reference.js"); !strings.Contains(script, `"/openapi.json"`) {
		t.Errorf("the reference is of something else:\n%s", script)
	}
	for _, path := range []string{"/docs/oauth2-redirect.html", "/docs/swagger-ui.js", "/docs/index.html"} {
		if status, _, _ := get(path); status != http.StatusNotFound {
			t.Errorf("%s is served: %d", path, status)
		}
	}
}
