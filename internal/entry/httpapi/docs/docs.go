package docs

import (
	"bytes"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/swaggest/swgui/v5/static"
	"golang.org/x/time/rate"

	"triprize.example/draw/web"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/problemdocs"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
)

// Mount registers the pages.
func Mount(router fiber.Router, contractJSON []byte) error {
	script, err := static.FS.ReadFile("swagger-ui-bundle.js.gz")
	if err != nil {
		return err
	}
	style, err := static.FS.ReadFile("swagger-ui.css.gz")
	if err != nil {
		return err
	}
	budget := rate.NewLimiter(publicBytes, 2*publicBytes)
	for path, file := range map[string]struct {
		contentType, policy string
		content             []byte
	}{
		"/openapi.json":              {fiber.MIMEApplicationJSON, "", contractJSON},
		"/docs":                      {fiber.MIMETextHTMLCharsetUTF8, referencePolicy, []byte(referencePage)},
		"/docs/":                     {fiber.MIMETextHTMLCharsetUTF8, referencePolicy, []byte(referencePage)},
		"/docs/start.js":             {fiber.MIMETextJavaScriptCharsetUTF8, "", []byte(referenceScript)},
		"/docs/swagger-ui-bundle.js": {fiber.MIMETextJavaScriptCharsetUTF8, "", script},
		"/docs/swagger-ui.css":       {"text/css; charset=utf-8", "", style},
		"/verify":                    {fiber.MIMETextHTMLCharsetUTF8, web.VerifyPolicy(), web.VerifyPage},
		"/verify/":                   {fiber.MIMETextHTMLCharsetUTF8, web.VerifyPolicy(), web.VerifyPage},
	} {
		a := NewFile(file.contentType, file.policy, file.content)
		a.budget = budget
		router.Get(path, a.Send)
	}
	router.Get("/", home)
	router.Get("/problems", problemIndex)
	router.Get("/problems/:code", problemPage)
	return nil
}

// referencePage shows the contract with Swagger UI. Swagger UI's own page has inline
// scripts, which referencePolicy does not allow.
const (
	referencePage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Triprize: the API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<noscript>This page needs JavaScript; the contract itself is at <a href="/openapi.json">/openapi.json</a>.</noscript>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
`
	referenceScript = `SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  showExtensions: true, // x-roles: the roles that may call an operation
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
`
	referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// statusOf returns the HTTP status of a code.
func statusOf(code fault.Code) int { return resource.Statuses[code.Kind()] }

// problemPage serves the page that the type of a problem document links to.
func problemPage(c *fiber.Ctx) error {
	code := fault.Code(c.Params("code"))
	var page bytes.Buffer
	write := problemdocs.ProblemPage
	if !wantsHTML(c) {
		write = problemdocs.ProblemText
	}
	if write(&page, code, statusOf(code)) != nil { // it fails only for an unknown code
		return fault.New(fault.NotFound, "there is no problem with this code; /problems lists them all")
	}
	return sendPage(c, page.Bytes())
}

// home is the page at the root, which leads to the others.
func home(c *fiber.Ctx) error {
	var page bytes.Buffer
	write := problemdocs.Home
	if !wantsHTML(c) {
		write = problemdocs.HomeText
	}
	if err := write(&page); err != nil {
		return err
	}
	return sendPage(c, page.Bytes())
}

func problemIndex(c *fiber.Ctx) error {
	var page bytes.Buffer
	write := problemdocs.ProblemIndex
	if !wantsHTML(c) {
		write = problemdocs.ProblemIndexText
	}
	if err := write(&page, statusOf); err != nil {
		return err
	}
	return sendPage(c, page.Bytes())
}

func wantsHTML(c *fiber.Ctx) bool {
	return response.Accepted(c, fiber.MIMETextPlain, fiber.MIMETextHTML) == fiber.MIMETextHTML
}

func sendPage(c *fiber.Ctx, page []byte) error {
	c.Set(fiber.HeaderContentType, fiber.MIMETextPlainCharsetUTF8)
	if wantsHTML(c) {
		c.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	}
	c.Set(fiber.HeaderContentSecurityPolicy, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	c.Vary(fiber.HeaderAccept)
	return c.Status(http.StatusOK).Send(page)
}
