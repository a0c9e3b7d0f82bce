// Package problemdocs renders the manual's pages about problems: one for every code,
// where the type of a problem document leads, and their index. Each comes as
// HTML and as plain text. The catalogue has what the manual says about each code.
//
// The HTML needs nothing but itself: no script, no font, no picture from
// elsewhere. It is shown in full under
//
//	Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'
//
// Which codes there are is in package fault; which status a code has is for
// package httpapi to say.
package problemdocs
