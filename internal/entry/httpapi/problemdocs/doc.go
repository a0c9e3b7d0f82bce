// Package problemdocs renders the pages about problems: one for every code, and their
// index.
//
// The type of a problem document links to its page. Each page is HTML or plain text.
// problems.yaml has the texts. The HTML loads nothing and works under
//
//	Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'
package problemdocs
