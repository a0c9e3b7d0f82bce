// Package web has the page that checks a draw.
//
// The page is plain JavaScript, written from the published procedure, and shares no code with
// the server or with package verify. Its libraries are pinned by the lock file of tools/npm and
// built in. The result is one embedded file in the repository, so nothing here needs Node.js.
// After a change of the sources, or of web/pages/static/style.css:
//
//	make npm && node draw/web/build.mjs
//
// A test builds the page anew and compares.
//
//	engine    the checks, as functions of bytes; also run as a worker
//	page      files, progress, report, picture
//	build.mjs puts both, the style (that of all pages, then page.css) and their policy into page.html
package web

import (
	_ "embed"
	"regexp"
)

// VerifyPage is the page that checks a draw: one file with everything inside, which works
// from disk as well.
//
//go:embed verify.html
var VerifyPage []byte

var statedPolicy = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="([^"]+)">`)

// VerifyPolicy returns the Content-Security-Policy of VerifyPage: the one that the page
// states, and that no other site may frame it, which only a header can say.
func VerifyPolicy() string {
	found := statedPolicy.FindSubmatch(VerifyPage)
	if found == nil {
		return "default-src 'none'" // a test would show it: the page would not run
	}
	return string(found[1]) + "; frame-ancestors 'none'"
}
