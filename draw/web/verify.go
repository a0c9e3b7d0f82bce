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
