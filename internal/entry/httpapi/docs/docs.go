package docs

import (
	"github.com/gofiber/fiber/v2"
	"github.com/swaggest/swgui/v5/static"
	"golang.org/x/time/rate"

	"triprize.example/draw/web"
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
	home, err := files.ReadFile("home.html")
	if err != nil {
		return err
	}
	problems, err := problemsPage()
	if err != nil {
		return err
	}
	budget := rate.NewLimiter(publicBytes, 2*publicBytes)
	for path, file := range map[string]struct {
		contentType, policy string
		content             []byte
	}{
		"/":                          {fiber.MIMETextHTMLCharsetUTF8, plainPolicy, home},
		"/problems":                  {fiber.MIMETextHTMLCharsetUTF8, plainPolicy, problems},
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
	return nil
}

// plainPolicy is for pages that load and run nothing.
const plainPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

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
