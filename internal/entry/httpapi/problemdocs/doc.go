// Package problemdocs renders the manual's pages about problems: one page for every
// code, which the type of a problem document links to, and their index. Each page
// comes as HTML and as plain text. catalogue.go has the text for each code.
//
// The HTML loads nothing else: no script, no font, no picture. It is shown in full
// under
//
//	Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'
//
// The codes are in package fault; package httpapi decides the status of a code.
package problemdocs
